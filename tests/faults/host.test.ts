// Runs a host without a control plane as an operator does: `sandbar host join`, `run` and `leave`. The test plays the
// control plane, and calls the agent over TLS.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { Agent, request as startRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { CONTROL_PLANE_NAME, type HostJoin, hostNameOf } from '@sandbar/contract/fleet.ts';
import { HOST_PATHS, type HostInfo, type MachineReport } from '@sandbar/contract/host-api.ts';
import { TestAuthority } from '../../packages/host-agent/tests/support/authority.ts';
import { environmentOf, homeOf, IS_ROOT } from './support/service-process.ts';
import { read, until } from './support/until.ts';

const CLI = path.resolve(import.meta.dirname, '../../packages/cli/bin/sandbar.mjs');
const ID = '019a0000-0000-7000-8000-00000000000a';
const home = homeOf('host');
const env = environmentOf('host');
const [, port = ''] = env.SANDBAR_LISTEN?.split(':') ?? [];

async function sandbar(...args: string[]) {
  const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'pipe'], env });
  const [out, error, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { code, stdout: out, stderr: error };
}

const pidOf = (file: string) => Number(read(file).split('\n')[0]);
const agentPid = () => pidOf(`${home}/run/host-agent.pid`);
const isAlive = (pid: number) => existsSync(`/proc/${pid}`);

describe('a host without a control plane', { skip: !IS_ROOT && 'needs root' }, () => {
  let authority: TestAuthority;
  let agent: Agent;
  let supervisor: ChildProcess | undefined;
  let output = '';
  const controlPlane = createServer(async (request, response) => {
    const join = JSON.parse(await text(request)) as HostJoin;
    response.end(JSON.stringify(await authority.sign(join.certificate_request, [hostNameOf(join.host_id)])));
  });

  before(async () => {
    authority = await TestAuthority.make();
    const tls = { ca: authority.pem, checkServerIdentity: () => undefined };
    agent = new Agent({ keepAlive: false, ...tls, ...(await authority.pair(CONTROL_PLANE_NAME)) });
    await once(controlPlane.listen(0, '127.0.0.1'), 'listening');
  });
  after(async () => {
    controlPlane.close();
    supervisor?.kill('SIGTERM');
    await sandbar('uninstall', '--purge', '--yes');
  });

  /** Calls the agent as the control plane does. Rejects when it does not answer. */
  const call = async <T>(method: string, at: string, body?: object): Promise<T> => {
    const headers = { 'content-type': 'application/json' };
    const sent = startRequest({ agent, host: '127.0.0.1', port, method, path: at, headers: body ? headers : {} });
    sent.end(body && JSON.stringify(body));
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const content = await text(answer);
    assert.ok((answer.statusCode ?? 500) < 300, content);
    return content === '' ? (undefined as T) : (JSON.parse(content) as T);
  };
  const ensure = (generation: number, desired: 'running' | 'stopped') => {
    const spec = { vcpus: 1, memory_mb: 128, rootfs_size_gb: 2, stack: 'base', hostname: 'machine' };
    const at = HOST_PATHS.machine.replace(':id', ID);
    return call<MachineReport>('PUT', at, { generation, desired, spec, volumes: [] });
  };
  const run = async () => {
    output = '';
    const child = spawn(process.execPath, [CLI, 'host', 'run'], { stdio: ['ignore', 'pipe', 'pipe'], env });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (part: string) => {
        output += part;
      });
    supervisor = child;
    await until('the host is ready', () => output.includes('The host is ready') || child.exitCode !== null);
    assert.equal(child.exitCode, null, output);
  };
  const end = async () => {
    supervisor?.kill('SIGTERM');
    const [code] = supervisor ? await once(supervisor, 'exit') : [];
    assert.equal(code, 0, output);
  };

  it('joins with a token, runs, and answers the control plane over TLS', async () => {
    const url = `http://127.0.0.1:${(controlPlane.address() as AddressInfo).port}`;
    const token = `sbh_${'a'.repeat(43)}.${authority.fingerprint}`;
    const joined = await sandbar('host', 'join', '--url', url, '--token', token, '--address', `127.0.0.1:${port}`);
    assert.equal(joined.code, 0, joined.stderr);
    await run();
    const { host_id } = await call<HostInfo>('GET', HOST_PATHS.host);
    assert.match(joined.stdout, new RegExp(host_id));
    const status = await sandbar('host', 'status');
    assert.deepEqual([status.code, status.stderr], [0, '']);
    assert.match(status.stdout, new RegExp(`^agent +runs, pid ${agentPid()}$`, 'm'));
    assert.equal((await ensure(1, 'running')).status, 'running');
  });

  it('a second run on the same data directory is refused', async () => {
    const { code, stderr } = await sandbar('host', 'run');
    assert.deepEqual([code, /already running/.test(stderr)], [1, true], stderr);
  });

  it('an agent that is killed is started again, and its machines go on running', async () => {
    const [killed, qemu] = [agentPid(), pidOf(`${home}/run/machines/${ID}/qemu.pid`)];
    process.kill(killed, 'SIGKILL');
    await until('another agent answers', async () => {
      await call('GET', HOST_PATHS.host);
      return agentPid() !== killed;
    });
    const { machines } = await call<{ machines: MachineReport[] }>('GET', HOST_PATHS.machines);
    assert.deepEqual(
      machines.map(({ machine_id, status }) => [machine_id, status]),
      [[ID, 'running']],
    );
    assert.ok(isAlive(qemu));
  });

  it('an end in order leaves the machines running, and the next run takes them over', async () => {
    const qemu = pidOf(`${home}/run/machines/${ID}/qemu.pid`);
    await end();
    assert.ok(isAlive(qemu));
    await assert.rejects(call('GET', HOST_PATHS.host));
    await run();
    assert.equal((await call<MachineReport>('GET', HOST_PATHS.machine.replace(':id', ID))).status, 'running');
    assert.equal(pidOf(`${home}/run/machines/${ID}/qemu.pid`), qemu);
  });

  it('leaves the fleet when its machines are gone', async () => {
    assert.match((await sandbar('host', 'leave')).stderr, /still has 1 machine/);
    await call('DELETE', `${HOST_PATHS.machine.replace(':id', ID)}?generation=2`);
    const left = await sandbar('host', 'leave');
    assert.equal(left.code, 0, left.stderr);
    assert.match(left.stderr, /the agent still runs/);
    await end();
    assert.match((await sandbar('host', 'run')).stderr, /has not joined a fleet/);
  });
});
