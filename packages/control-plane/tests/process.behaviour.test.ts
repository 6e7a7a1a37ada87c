// Tests the control plane as a process: its ready message, signals, the death of its supervisor, and clear error
// messages when it cannot start.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { homePaths } from '@sandbar/contract/home.ts';
import { readConfig } from '../src/config.ts';
import { callAdmin } from './support/admin.ts';
import { FakeHost } from './support/fake-host.ts';
import { freePort } from './support/free-ports.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';

const MAIN = new URL('../src/main.ts', import.meta.url).pathname;
const databaseUrl = await createDatabase();
const home = mkdtempSync(join(tmpdir(), 'sandbar-process-'));
mkdirSync(join(home, 'run'), { recursive: true });
const host = new FakeHost(homePaths(home).hostAgentSocket);
await host.listen();
const children: ChildProcess[] = [];
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  await host.away();
  await endSharedPostgres();
  rmSync(home, { recursive: true, force: true });
});

type Started = { child: ChildProcess; output: () => string; exited: Promise<number | null>; baseUrl: string };

async function start(env: Record<string, string> = {}): Promise<Started> {
  const port = await freePort();
  const child = spawn(process.execPath, [MAIN], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      SANDBAR_HOME: home,
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${await freePort()}`,
      SANDBAR_DATABASE_URL: databaseUrl,
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
      SANDBAR_SECRET: 'a secret of the tests that is long enough',
      ...env,
    },
  });
  children.push(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (data) => {
      output += data;
    });
  }
  const exited = once(child, 'exit').then(([code]) => code as number | null);
  return { child, output: () => output, exited, baseUrl: `http://127.0.0.1:${port}` };
}

async function startReady(): Promise<Started> {
  const started = await start();
  const message = await Promise.race([once(started.child, 'message').then(([value]) => value), started.exited]);
  assert.deepEqual(message, { type: 'ready' }, started.output());
  return started;
}

async function makeKey(email: string): Promise<string> {
  const made = await callAdmin(homePaths(home).adminSocket, '/admin/accounts', { email });
  return String(made.json.api_key);
}

describe('the process', () => {
  it('says when it is ready, serves, and ends with 0 on SIGTERM', async () => {
    const { child, exited, baseUrl, output } = await startReady();
    assert.equal((await fetch(`${baseUrl}/v1/machines`)).status, 401);
    child.kill('SIGTERM');
    assert.equal(await exited, 0, output());
    assert.match(output(), /shutting down/);
  });

  it('loses no connection when a thousand are opened while it is busy (RES-10)', async () => {
    const { child, exited, baseUrl } = await startReady();
    // The stopped process accepts nothing, so all connections stay with the kernel.
    child.kill('SIGSTOP');
    const { hostname, port } = new URL(baseUrl);
    const sockets = Array.from({ length: 1_000 }, () => connect(Number(port), hostname).on('error', () => undefined));
    await Promise.all(sockets.map((socket) => once(socket, 'connect', { signal: AbortSignal.timeout(15_000) })));
    for (const socket of sockets) socket.destroy();
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    assert.equal(await exited, 0);
  });

  it('lets requests in flight end, and ends long waits early', async () => {
    const { child, exited, baseUrl, output } = await startReady();
    const headers = {
      authorization: `Bearer ${await makeKey('inflight@example.test')}`,
      'content-type': 'application/json',
    };
    const post = (path: string, body: object) =>
      fetch(`${baseUrl}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    await until(async () => (await post('/v1/machines', {})).status === 201, 'it reached the host');
    const machine = (await (await post('/v1/machines', {})).json()) as { id: string };
    const job = (await (await post(`/v1/machines/${machine.id}/execs`, { command: 'sleep' })).json()) as { id: string };
    const began = performance.now();
    const waiting = fetch(`${baseUrl}/v1/machines/${machine.id}/execs/${job.id}?wait_ms=60000`, { headers });
    host.fault('ensure', 'hang', 1);
    const creating = post('/v1/machines', {});
    const ensures = host.callsOf('ensure');
    await until(() => host.callsOf('ensure') > ensures && host.callsOf('getJob') > 0, 'both are in flight');
    child.kill('SIGTERM');
    assert.equal((await waiting).status, 200);
    host.heal();
    assert.equal((await creating).status, 201);
    assert.equal(await exited, 0, output());
    assert(performance.now() - began < 9000);
  });

  it('ends when its supervisor is gone', async () => {
    const { child, exited } = await startReady();
    child.disconnect();
    assert.equal(await exited, 0);
  });

  it('is killed in the middle of a create: the next one finishes it', async () => {
    const first = await startReady();
    const key = await makeKey('killed@example.test');
    const headers = { authorization: `Bearer ${key}` };
    await until(
      async () => (await fetch(`${first.baseUrl}/v1/machines`, { method: 'POST', headers })).status === 201,
      'connected',
    );
    host.fault('ensure', 'hang', 1);
    const ensures = host.callsOf('ensure');
    const post = { method: 'POST', headers: { ...headers, 'idempotency-key': 'killed' } };
    const creating = fetch(`${first.baseUrl}/v1/machines`, post).catch(() => undefined);
    await until(() => host.callsOf('ensure') > ensures, 'the create is under way');
    first.child.kill('SIGKILL');
    await creating;
    host.heal();
    const { child, exited, baseUrl } = await startReady();
    const retry = fetch(`${baseUrl}/v1/machines`, post);
    const states = async () => {
      const { machines } = (await (await fetch(`${baseUrl}/v1/machines`, { headers })).json()) as {
        machines: { state: string }[];
      };
      return machines.map((machine) => machine.state);
    };
    await until(async () => (await states()).join() === 'running,running', 'the create is finished', 20_000);
    assert.deepEqual([(await retry).status, (await retry).headers.get('idempotent-replayed')], [200, 'true']);
    child.kill('SIGINT');
    assert.equal(await exited, 0);
  });
});

describe('what keeps it from starting is one clear line and exit code 1', () => {
  const cases: [string, () => Promise<Record<string, string>>, RegExp][] = [
    ['a missing database URL', async () => ({ SANDBAR_DATABASE_URL: '' }), /SANDBAR_DATABASE_URL is required/],
    ['a bad address', async () => ({ SANDBAR_LISTEN: '7070' }), /SANDBAR_LISTEN must be HOST:PORT/],
    [
      'a bad overcommit',
      async () => ({ SANDBAR_MEMORY_OVERCOMMIT: 'lots' }),
      /SANDBAR_MEMORY_OVERCOMMIT must be a number/,
    ],
    ['a bad log level', async () => ({ SANDBAR_LOG_LEVEL: 'loud' }), /SANDBAR_LOG_LEVEL must be one of trace/],
    [
      'a database that is not there',
      async () => ({ SANDBAR_DATABASE_URL: 'postgres://localhost:1/x' }),
      /database of SANDBAR_DATABASE_URL does not answer/,
    ],
  ];
  for (const [name, env, words] of cases) {
    it(name, async () => {
      const { exited, output } = await start(await env());
      assert.equal(await exited, 1);
      assert.match(output(), words);
      assert.equal(output().trim().split('\n').length, 1, output());
    });
  }

  for (const variable of ['SANDBAR_LISTEN', 'SANDBAR_METRICS_LISTEN']) {
    it(`a port in use (${variable})`, async () => {
      const taken = createServer().listen(0, '127.0.0.1');
      await once(taken, 'listening');
      const address = `127.0.0.1:${(taken.address() as AddressInfo).port}`;
      const { exited, output } = await start({ [variable]: address });
      assert.equal(await exited, 1);
      assert.match(output(), new RegExp(`The address ${address} is in use .* set ${variable} to another HOST:PORT`));
      taken.close();
    });
  }
});

describe('the configuration', () => {
  it('has the documented defaults, and takes IPv6', () => {
    const secret = 'a secret of the tests that is long enough';
    const env = { SANDBAR_DATABASE_URL: 'postgres://x/y', SANDBAR_LISTEN: '[::1]:80', SANDBAR_SECRET: secret };
    const config = readConfig(env, true);
    assert.deepEqual([config.activityRetentionDays, config.allowEmulatedTenants], [365, false]);
    assert.deepEqual(
      [config.rates.mutating, config.rates.exec],
      [
        { perSec: 10, burst: 60 },
        { perSec: 20, burst: 100 },
      ],
    );
    assert.throws(() => readConfig({ ...env, SANDBAR_SECRET: 'short' }, true), /SANDBAR_SECRET .*32 random characters/);
    assert.equal(readConfig({ ...env, SANDBAR_TRUST_PROXY: '127.0.0.1, 10.0.0.0/8' }, true).trustProxy.length, 21);
    for (const proxies of ['proxy', '10.0.0.0/33', '10.0.0.1,']) {
      assert.throws(() => readConfig({ ...env, SANDBAR_TRUST_PROXY: proxies }, true), /SANDBAR_TRUST_PROXY must be/);
    }
    assert.throws(() => readConfig({ ...env, SANDBAR_RATE_EXEC: '5' }, true), /SANDBAR_RATE_EXEC must be PER_SECOND/);
    assert.deepEqual(
      [config.home, config.overcommit, config.logLevel],
      ['/var/lib/sandbar', { memory: 4, vcpus: 128, disk: 16 }, 'info'],
    );
    assert.deepEqual(
      [config.listen, config.metricsListen],
      [
        { host: '::1', port: 80 },
        { host: '127.0.0.1', port: 7071 },
      ],
    );
  });
});
