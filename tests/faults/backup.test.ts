// Backs a service up, loses its data directory and its images, and restores it, with the commands of docs/operating.md.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import { blocksRunBy } from '../clients/support/doc-examples.ts';
import { type Api, apiOf, endOf, hashOutput, SMALL, startJob } from './support/api.ts';
import { environmentOf, folder, homeOf } from './support/service-process.ts';
import { read, until } from './support/until.ts';

const PAGE = 'docs/operating.md';
const CLI = path.resolve(import.meta.dirname, '../../packages/cli/bin/sandbar.mjs');
const home = homeOf('backup');
const backups = path.join(folder, 'backups');
const bin = path.join(folder, 'bin');
const env: NodeJS.ProcessEnv = {
  ...environmentOf('backup'),
  SANDBAR_TEMPLATES: '0',
  PATH: `${bin}:${process.env.PATH}`,
};
const blocks = blocksRunBy(PAGE, 'tests/faults/backup.test.ts');
/** The file of random bytes in the machine, on its root disk and on its volume. */
const FILES = ['/root/data', '/data/data'];

async function run(program: string, args: string[], more: NodeJS.ProcessEnv = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...env, ...more }, cwd: folder });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: code as number | null, stdout, stderr };
}

const sandbar = (...args: string[]) => run('sandbar', args);

/** Runs a block of the page as it stands, with the folders of the test for those of a usual installation. */
async function runBlock(label: string): Promise<string> {
  const block = blocks.get(label) ?? assert.fail(`${PAGE} has no block "${label}"`);
  const script = block
    .replaceAll('/var/backups/sandbar', backups)
    .replaceAll('/var/lib/sandbar', home)
    .replaceAll('/root/', `${folder}/`);
  const { code, stdout, stderr } = await run('bash', ['-eu', '-c', script]);
  assert.equal(code, 0, `${label}:\n${script}\n${stdout}\n${stderr}`);
  return stdout;
}

async function inMachine(api: Api, id: string, command: string): Promise<string> {
  const job = await startJob(api, id, command);
  assert.equal(await endOf(api, id, job), 0, command);
  return hashOutput(api, id, job);
}

const contentOf = (api: Api, id: string, files = FILES) => inMachine(api, id, `cat ${files.join(' ')}`);

async function post<T>(api: Api, at: string, body: object): Promise<T> {
  const answer = await api<T>('POST', at, body);
  assert.ok(answer.status < 300, JSON.stringify(answer.body));
  return answer.body;
}

async function balanceOf(email: string): Promise<string> {
  const { stdout } = await sandbar('admin', 'account', 'show', email, '--json');
  return (JSON.parse(stdout) as { balance: string }).balance;
}

/** Waits until the doctor has no findings: right after a start, comparisons with the host are still under way. */
async function assertWell(): Promise<void> {
  let said = '';
  await until('the doctor finds nothing', async () => {
    const { code, stdout, stderr } = await sandbar('doctor');
    said = stdout + stderr;
    return code === 0;
  }).catch((error: unknown) => assert.fail(`${error}:\n${said}`));
}

describe('back-up and restore', () => {
  const kept = { stopped: '', running: '', volume: '', snapshot: '', content: '', ofRoot: '', credentials: '' };

  before(() => {
    mkdirSync(bin);
    symlinkSync(CLI, path.join(bin, 'sandbar'));
    symlinkSync(process.execPath, path.join(bin, 'node'));
  });
  after(() => sandbar('uninstall', '--purge', '--yes'));

  it('has accounts, machines, a volume and a snapshot to keep', async () => {
    assert.equal((await sandbar('up')).code, 0);
    kept.credentials = readFileSync(`${home}/credentials.json`, 'utf8');
    const api = apiOf(home);
    const volume = await post<Volume>(api, '/v1/volumes', { name: 'data', size_gb: 5 });
    const machine = await post<Machine>(api, '/v1/machines', { ...SMALL, name: 'stopped' });
    [kept.stopped, kept.volume] = [machine.id, volume.id];
    const attach = { machine_id: machine.id, mount_path: '/data' };
    await post(api, `/v1/volumes/${volume.id}/attach`, attach);
    const write = FILES.map((file) => `head -c 3000000 /dev/urandom > ${file}`).join(' && ');
    await inMachine(api, machine.id, `${write} && sync`);
    kept.content = await contentOf(api, machine.id);
    kept.ofRoot = await contentOf(api, machine.id, FILES.slice(0, 1));
    kept.snapshot = (await post<Snapshot>(api, `/v1/machines/${machine.id}/snapshots`, { name: 'kept' })).id;
    await post(api, `/v1/machines/${machine.id}/stop`, {});
    kept.running = (await post<Machine>(api, '/v1/machines', { ...SMALL, name: 'running' })).id;
    const account = ['--email', 'ada@example.org', '--tier', 'payg', '--billing', 'prepaid', '--credit', '25'];
    assert.equal((await sandbar('admin', 'account', 'create', ...account)).code, 0);
    assert.equal(await balanceOf('ada@example.org'), '25.000000');
  });

  it('is refused while the service runs', async () => {
    const { code, stderr } = await sandbar('admin', 'backup', path.join(backups, 'early'));
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: Sandbar runs on .*: stop it first \(sandbar down\)/);
  });

  it('is taken while the service is stopped', async () => {
    const said = await runBlock('back up');
    for (const file of ['keys', 'database', 'disks', 'images'])
      assert.match(said, new RegExp(`^${file}\\.tar +\\d`, 'm'));
    assert.equal((await sandbar('down')).code, 0);
  });

  it('is not restored over what is there', async () => {
    const { code, stderr } = await sandbar('admin', 'restore', path.join(backups, '2026-11-26'));
    const isRefused = /has secret, .* already, and a restore writes over nothing/.test(stderr);
    assert.deepEqual([code, isRefused], [1, true], stderr);
  });

  it('a damaged archive is noticed before anything is restored', async () => {
    const manifest = path.join(backups, '2026-11-26/backup.json');
    const whole = readFileSync(manifest, 'utf8');
    writeFileSync(manifest, whole.replace(/("sha256": ")./g, '$1x'));
    rmSync(home, { recursive: true });
    for (const name of ['images', 'rootfs', 'kernel', 'initramfs'])
      rmSync(path.join(env.SANDBAR_CACHE ?? assert.fail(), name), { recursive: true });
    const { code, stderr } = await sandbar('admin', 'restore', path.join(backups, '2026-11-26'));
    assert.deepEqual([code, /keys\.tar is damaged.*Nothing was restored/.test(stderr)], [1, true], stderr);
    writeFileSync(manifest, whole);
  });

  it('a restore that was interrupted keeps the service from starting', async () => {
    mkdirSync(path.join(home, 'machines/half'), { recursive: true });
    writeFileSync(path.join(home, 'restore.unfinished'), 'secret\nmachines\n');
    const { code, stderr } = await sandbar('up');
    assert.equal(code, 1);
    assert.match(stderr, /The restore of .* has not ended: run the same sandbar admin restore again/);
  });

  it('brings everything back: keys, rows, the ledger, disks, the volume and the snapshot', async () => {
    await runBlock('restore');
    assert.equal(readFileSync(`${home}/credentials.json`, 'utf8'), kept.credentials);
    const api = apiOf(home);
    const { body } = await api<{ machines: Machine[] }>('GET', '/v1/machines');
    assert.deepEqual(
      body.machines.map(({ id, state }) => `${id} ${state}`).sort(),
      [kept.stopped, kept.running].map((id) => `${id} stopped`).sort(),
    );
    await post(api, `/v1/machines/${kept.stopped}/start`, {});
    assert.equal(await contentOf(api, kept.stopped), kept.content);
    const copy = await post<Machine>(api, '/v1/machines', { snapshot_id: kept.snapshot, memory_mb: 128 });
    assert.equal(await contentOf(api, copy.id, FILES.slice(0, 1)), kept.ofRoot);
    assert.equal((await api('DELETE', `/v1/machines/${copy.id}`)).status, 200);
    await post(api, `/v1/machines/${kept.stopped}/stop`, {});
    assert.equal(await balanceOf('ada@example.org'), '25.000000');
    await assertWell();
  });

  it('the database alone is backed up while the service runs, and comes back as it was then', async () => {
    const credit = (eur: string) =>
      sandbar(
        'admin',
        'account',
        'credit',
        'ada@example.org',
        '--eur',
        eur,
        '--as',
        'top-up',
        '--reference',
        `R${eur}`,
      );
    assert.equal((await credit('5')).code, 0);
    await runBlock('back up the database');
    assert.equal((await credit('7')).code, 0);
    await runBlock('restore the database');
    assert.equal(await balanceOf('ada@example.org'), '30.000000');
    await assertWell();
  });

  it('a new secret takes the fleet with it', async () => {
    assert.equal((await sandbar('admin', 'host', 'token')).code, 0);
    const old = read(`${home}/secret`);
    await runBlock('change the secret');
    assert.notEqual(read(`${home}/secret`), old);
    assert.match(read(`${home}/logs/control-plane.log`), /the keys of the fleet are encrypted under the new secret/);
    assert.equal((await apiOf(home)('GET', '/v1/account')).status, 200);
    await runBlock('change the authority of the fleet');
  });
});
