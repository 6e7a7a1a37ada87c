// Runs the service in the background as a user does: `sandbar up`, `status`, `down` and `uninstall`.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { homeId } from '@sandbar/host-agent/network/names.ts';
import type { ServiceStatus } from '@sandbar/service/background/status.ts';
import { apiOf, SMALL } from './support/api.ts';
import { networksOf } from './support/leftovers.ts';
import { environmentOf, folder, homeOf, IS_ROOT } from './support/service-process.ts';
import { read, until } from './support/until.ts';

const CLI = path.resolve(import.meta.dirname, '../../packages/cli/bin/sandbar.mjs');
const home = homeOf('background');
const env = environmentOf('background');

async function sandbar(args: string[], more: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, [CLI, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env, ...more },
  });
  const [out, error, [code]] = await Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    once(child, 'close'),
  ]);
  return { code, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(error).toString() };
}

/** Starts the command and does not wait for it. `ended` resolves with its exit code. */
function start(args: string[], more: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, [CLI, ...args], { stdio: 'ignore', env: { ...env, ...more } });
  return { child, ended: once(child, 'close').then(([code]) => code as number | null) };
}

async function status(): Promise<ServiceStatus & { code: number }> {
  const { code, stdout } = await sandbar(['status', '--json']);
  return { code, ...JSON.parse(stdout) };
}

/** The processes of the data directory: those with its path in their command line or environment. */
function processesOf(place: string): string[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .filter((pid) => [read(`/proc/${pid}/environ`), read(`/proc/${pid}/cmdline`)].some((text) => text.includes(place)))
    .map((pid) => `${pid} ${read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ')}`);
}

/** What the data directory has on the host besides its processes and files. */
function hostObjectsOf(place: string): string[] {
  const name = `sandbar-${homeId(place)}`;
  const groups = ['', 'cpu/', 'memory/', 'pids/', 'blkio/'].map((controller) => `/sys/fs/cgroup/${controller}${name}`);
  const mounts = read('/proc/self/mountinfo')
    .split('\n')
    .filter((line) => line.includes(place) || line.includes(name));
  return [...networksOf([place]), ...mounts, ...[`/run/${name}`, `/dev/${name}`, ...groups].filter(existsSync)];
}

describe('the service in the background', () => {
  let foreground: ReturnType<typeof start> | undefined;
  after(async () => {
    await sandbar(['uninstall', '--purge', '--yes']);
  });

  it('does not run before up', async () => {
    const { code, stdout, stderr } = await sandbar(['status']);
    assert.equal(code, 1);
    assert.match(stdout, /^state +stopped$/m);
    assert.match(stderr, /sandbar up starts it/);
    assert.equal((await sandbar(['down'])).stdout, `Sandbar does not run on ${home}.\n`);
    assert.equal(existsSync(home), false);
  });

  it('a start that fails shows the end of its output', async () => {
    const broken = homeOf('broken');
    mkdirSync(broken);
    writeFileSync(path.join(broken, 'credentials.json'), '{"base_url":');
    const { code, stdout, stderr } = await sandbar(['up'], { SANDBAR_HOME: broken });
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /^sandbar: Sandbar did not start \(.*\/logs\/service\.log\):\n/);
    assert.match(stderr, /credentials.json is damaged/);
  });

  it('Ctrl-C during up ends what was started', async () => {
    const stopped = homeOf('stopped');
    const { child, ended } = start(['up'], { SANDBAR_HOME: stopped });
    await until('the service is being started', () => existsSync(`${stopped}/run/host-agent.pid`));
    child.kill('SIGINT');
    assert.equal(await ended, 130);
    assert.deepEqual(processesOf(folder), []);
  });

  it('up returns when it is ready, and says where it is', async () => {
    const { code, stdout, stderr } = await sandbar(['up']);
    assert.equal(code, 0, stderr);
    const address = `http://${env.SANDBAR_LISTEN}`;
    assert.match(stdout, new RegExp(`^Sandbar is ready.\n  address      ${address}\n`));
    assert.match(stdout, new RegExp(`^  credentials  ${home}/credentials.json$`, 'm'));
    assert.match(readFileSync(`${home}/logs/service.log`, 'utf8'), /test machine/);
  });

  it('a second up says that it runs already, and starts nothing', async () => {
    const before = (await status()).processes;
    const { code, stdout } = await sandbar(['up']);
    assert.equal(code, 0);
    assert.match(stdout, /^Sandbar runs already.\n/);
    assert.deepEqual((await status()).processes, before);
  });

  it('status counts the machines of the account', async () => {
    const api = apiOf(home);
    for (let count = 0; count < 2; count += 1) assert.equal((await api('POST', '/v1/machines', SMALL)).status, 201);
    const { code, healthy, state, machines, processes, disk_bytes, address, version } = await status();
    assert.deepEqual([code, healthy, state], [0, true, 'running']);
    assert.deepEqual(machines, { running: 2, stopped: 0, other: 0 });
    assert.deepEqual(
      processes.map(({ name, running }) => `${name} ${running}`),
      ['supervisor true', 'postgres true', 'host-agent true', 'control-plane true'],
    );
    assert.equal(address, `http://${env.SANDBAR_LISTEN}`);
    assert.match(version ?? '', /^\d+\.\d+\.\d+$/);
    assert.ok(disk_bytes !== null && disk_bytes > 2 ** 20);
  });

  it('uninstall asks on a terminal only, and without one needs --yes', async () => {
    const { code, stderr } = await sandbar(['uninstall', '--purge']);
    assert.equal(code, 2);
    assert.match(stderr, /--yes/);
    assert.equal((await status()).code, 0);
  });

  it('down stops it', async () => {
    assert.equal((await sandbar(['down'])).stdout, 'Sandbar is stopped.\n');
    const stopped = await status();
    assert.deepEqual([stopped.code, stopped.state, stopped.processes], [1, 'stopped', []]);
    assert.deepEqual(processesOf(folder), []);
  });

  it('uninstall keeps the data, and up --foreground goes on from there', async () => {
    const { code, stdout, stderr } = await sandbar(['uninstall', '--yes']);
    assert.deepEqual([code, stdout, stderr], [0, `Sandbar is removed; its data is in ${home}.\n`, '']);
    assert.deepEqual(hostObjectsOf(home), []);
    foreground = start(['up', '--foreground']);
    await until('it is ready', async () => (await status()).healthy);
    assert.deepEqual((await status()).machines, { running: 0, stopped: 2, other: 0 });
    assert.equal(foreground.child.exitCode, null);
  });

  it('uninstall --purge leaves nothing, even when machines run whose host agent and supervisor were killed', async () => {
    const api = apiOf(home);
    const [machine] = (await api<{ machines: Machine[] }>('GET', '/v1/machines')).body.machines;
    assert.equal((await api('POST', `/v1/machines/${machine?.id}/start`)).status, 200);
    for (const name of ['host-agent', 'supervisor'])
      process.kill(Number(read(`${home}/run/${name}.pid`).split('\n')[0]), 'SIGKILL');
    assert.equal(await foreground?.ended, 137);
    assert.equal((await status()).state, 'stopped');
    if (IS_ROOT) assert.notDeepEqual(hostObjectsOf(home), []);
    const stopped = homeOf('stopped');
    for (const name of ['secret', 'credentials.json']) writeFileSync(path.join(stopped, name), '');
    const other = await sandbar(['uninstall', '--purge', '--yes'], { SANDBAR_HOME: stopped });
    assert.match(other.stderr, new RegExp(`kept ${env.SANDBAR_CACHE}, because the service of ${home} uses it`));
    assert.equal(existsSync(stopped), false);
    const { code, stdout, stderr } = await sandbar(['uninstall', '--purge', '--yes']);
    assert.equal(code, 0, stderr);
    assert.equal(stdout, 'Sandbar and its data are removed.\n');
    assert.doesNotMatch(stderr, /kept/);
    assert.deepEqual(processesOf(folder), []);
    assert.deepEqual(hostObjectsOf(home), []);
    assert.equal(existsSync(home), false);
    assert.equal(existsSync(env.SANDBAR_CACHE ?? ''), false);
  });

  it('uninstall touches neither a folder that is no data directory, nor files that it did not make', async () => {
    const foreign = homeOf('foreign');
    mkdirSync(path.join(foreign, 'machines'), { recursive: true });
    const refused = await sandbar(['uninstall', '--purge', '--yes'], { SANDBAR_HOME: foreign });
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^sandbar: .*\/foreign is not a data directory of Sandbar: .*\n$/);
    assert.ok(existsSync(path.join(foreign, 'machines')));
    writeFileSync(path.join(foreign, 'secret'), 'x');
    assert.equal((await sandbar(['uninstall', '--purge', '--yes'], { SANDBAR_HOME: foreign })).code, 1);
    writeFileSync(path.join(foreign, 'credentials.json'), '{}');
    writeFileSync(path.join(foreign, 'thesis.partial'), 'x');
    const cleaned = await sandbar(['uninstall', '--purge', '--yes'], { SANDBAR_HOME: foreign });
    assert.equal(cleaned.code, 0, cleaned.stderr);
    assert.match(cleaned.stderr, /^sandbar: kept .*\/foreign, because it has other files: thesis.partial$/m);
    assert.deepEqual(readdirSync(foreign), ['thesis.partial']);
  });
});
