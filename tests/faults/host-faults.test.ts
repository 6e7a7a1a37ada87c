// What goes wrong with the host itself: a port that is taken, files that are damaged or gone, a QEMU that does not work, a
// disk that is full. Each is one sentence that says what to do, and nothing half made is left. Services of its own, started
// as a user starts them, on free ports and on fresh data directories.
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statfsSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Exec, ExecOutput } from '@sandbar/contract/exec.ts';
import { defaultCache } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';

const CHECKOUT = path.resolve(import.meta.dirname, '..', '..');
const isRoot = process.getuid?.() === 0;
/** PostgreSQL takes 60 MB of it, a machine 10 to 20; what is left is filled. */
const SMALL_DISK = '256m';

// Short: the path of a data directory may have 76 bytes.
const folder = mkdtempSync('/tmp/sbf-');
chmodSync(folder, 0o755);
const cache = path.join(folder, 'cache');
const interfacesBefore = interfaces();
const tablesBefore = nftTables();
const started: Start[] = [];
const mounts: string[] = [];

after(async () => {
  for (const start of started) await start.end();
  for (const mount of mounts) execFileSync('umount', [mount]);
  const left = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .map((pid) => ({ pid, environ: read(`/proc/${pid}/environ`), command: read(`/proc/${pid}/cmdline`) }))
    .filter(({ environ, command }) => environ.includes(folder) || command.includes(folder));
  assert.deepEqual(
    left.map(({ pid, command }) => `${pid} ${command}`),
    [],
    'processes are left',
  );
  assert.doesNotMatch(read('/proc/self/mountinfo'), new RegExp(folder), 'a mount is left');
  await until('no interface or nftables table is left', () => {
    const isOther = (name: string) => !interfacesBefore.has(name) && bridgesOfOurs().has(name);
    return (
      ![...interfaces()].some(isOther) && ![...nftTables()].some((table) => !tablesBefore.has(table) && isOurs(table))
    );
  });
  rmSync(folder, { recursive: true, force: true });
});

before(() => copyCache());

// A run that is called off ends its services as well; `after` does not run then.
process.once('SIGTERM', async () => {
  await Promise.all(started.map((start) => start.end()));
  for (const mount of mounts) execFileSync('umount', [mount]);
  rmSync(folder, { recursive: true, force: true });
  process.exit(143);
});

describe('a start that cannot be', () => {
  it('a port in use: the variable and the holder are named', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    for (const variable of ['SANDBAR_LISTEN', 'SANDBAR_METRICS_LISTEN']) {
      const { code, sentence } = await start('port', { [variable]: `127.0.0.1:${port}` }).ended;
      assert.equal(code, 1);
      assert.match(sentence, new RegExp(`^127.0.0.1:${port} is in use.*: end what listens there or set ${variable}`));
    }
    server.close();
    assert.deepEqual(
      readdirSync(path.join(homeOf('port'), 'run')).filter((name) => name.endsWith('.pid')),
      [],
    );
  });

  it('a damaged credentials.json: said before anything is made, and the file is left alone', async () => {
    const home = homeOf('credentials');
    mkdirSync(home);
    writeFileSync(path.join(home, 'credentials.json'), '{"base_url":');
    const { code, sentence } = await start('credentials').ended;
    assert.equal(code, 1);
    assert.match(sentence, /credentials\.json is damaged .*: move it away and run npm start again/);
    assert.deepEqual(readdirSync(home), ['credentials.json']);
  });

  for (const [what, script, says] of [
    ['that fails', 'echo no such library >&2; exit 1', /QEMU does not work: .*no such library.*SANDBAR_QEMU/],
    ['that is something else', 'echo hello', /is not QEMU: it says "hello".*SANDBAR_QEMU/],
  ] as const) {
    it(`a QEMU ${what}: one sentence at the start`, async () => {
      const { code, sentence, output } = await start('qemu', { SANDBAR_QEMU: program('bad-qemu', script) }).ended;
      assert.equal(code, 1);
      assert.match(sentence, says, output);
      assert.equal(output.trim().split('\n').at(-1), sentence, 'nothing follows the sentence');
    });
  }

  it('a QEMU that is not there: one sentence at the start', async () => {
    const { code, sentence } = await start('qemu', { SANDBAR_QEMU: '/nowhere/qemu' }).ended;
    assert.equal(code, 1);
    assert.match(sentence, /\/nowhere\/qemu was not found; install it .*SANDBAR_QEMU/);
  });

  it('a data directory that is a file, or on a read-only disk', async () => {
    writeFileSync(homeOf('file'), '');
    const file = await start('file').ended;
    assert.equal(file.code, 1);
    assert.match(file.sentence, /Cannot write to the data directory .*\/file .*SANDBAR_HOME/);
    if (!isRoot) return;
    mountDisk('readonly', 'ro,size=1m');
    const readOnly = await start('readonly').ended;
    assert.equal(readOnly.code, 1);
    assert.match(readOnly.sentence, /Cannot write to the data directory .*EROFS.*SANDBAR_HOME/);
  });

  it('a disk that is full, and one that fills during the first start', { skip: !isRoot }, async () => {
    const full = mountDisk('full', 'size=1m');
    fill(full, 0);
    const atOnce = await start('full').ended;
    assert.equal(atOnce.code, 1);
    assert.match(atOnce.sentence, /disk .* is full.*: free some space/i, atOnce.output);

    const small = mountDisk('small', 'size=20m');
    const later = await start('small').ended;
    assert.equal(later.code, 1);
    assert.match(later.sentence, /disk .* is full.*: free some space/i, later.output);
    assert.deepEqual(
      readdirSync(small).filter((name) => name.startsWith('postgres')),
      [],
      'no half-made database',
    );
  });

  it('without root a data directory of another account', { skip: !isRoot }, async () => {
    mkdirSync(homeOf('other'), { mode: 0o755 });
    const asNobody = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'];
    const { code, sentence } = await start('other', {}, asNobody).ended;
    assert.equal(code, 1);
    assert.match(sentence, /Cannot write to the data directory .*\/other .*SANDBAR_HOME/);
  });
});

describe('an image that is gone', () => {
  it('the set-up makes what can be made again, and says what to do about a disk', async () => {
    const files = imageFiles();
    rmSync(files.initramfs);
    const mended = await start('image', {}, [], ['--setup-only']).ended;
    assert.equal(mended.code, 0, mended.output);
    assert.ok(existsSync(files.initramfs));

    renameSync(files.rootfs, `${files.rootfs}.away`);
    const told = await start('image', {}, [], ['--setup-only']).ended;
    renameSync(`${files.rootfs}.away`, files.rootfs);
    assert.equal(told.code, 1);
    assert.match(told.sentence, /^The disk .*rootfs\.img of an image is missing: restore it, or remove /);
  });
});

describe('a host that goes wrong under a running service', () => {
  const broken = path.join(folder, 'qemu-is-broken');
  let home: string;
  let service: Start;
  let api: Api;

  before(async () => {
    const real = execFileSync('sh', ['-c', 'command -v qemu-system-x86_64'], { encoding: 'utf8' }).trim();
    home = isRoot ? mountDisk('home', `size=${SMALL_DISK}`) : homeOf('home');
    const script = `[ -e ${broken} ] && [ "$1" != --version ] && { echo its accelerator is gone >&2; exit 1; }\nexec ${real} "$@"`;
    service = start('home', { SANDBAR_QEMU: program('breakable-qemu', script) });
    await service.ready;
    api = apiOf(home);
  });

  it('a second start on the same data directory: already running, and the first goes on', async () => {
    const { code, sentence } = await start('home').ended;
    assert.equal(code, 1);
    assert.match(sentence, new RegExp(`already running on ${home} \\(pid \\d+\\)`));
    assert.equal((await api('GET', '/v1/machines')).status, 200);
  });

  it('a QEMU that no longer starts: 503 says so, nothing is left, and a mended one works', async () => {
    const before = remains(home);
    writeFileSync(broken, '');
    const refused = await api('POST', '/v1/machines', SMALL);
    assert.deepEqual([refused.status, refused.body.code], [503, 'host_unavailable']);
    assert.match(refused.body.detail, /cannot start machines: .*its accelerator is gone/);
    await assertNothingLeft(api, home, before);
    rmSync(broken);
    const machine = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(machine.status, 201);
    assert.equal((await api('DELETE', `/v1/machines/${machine.body.id}`)).status, 200);
  });

  it('an image that was deleted: 503 says what to do, nothing is left, and a restored one works', async () => {
    const before = remains(home);
    const { manifest } = imageFiles();
    for (const file of [manifest, imageFiles().rootfs]) {
      renameSync(file, `${file}.away`);
      const refused = await api('POST', '/v1/machines', SMALL);
      renameSync(`${file}.away`, file);
      assert.deepEqual([refused.status, refused.body.code], [503, 'host_unavailable']);
      assert.match(refused.body.detail, /cannot use the image "base": .*run npm start again/);
      await assertNothingLeft(api, home, before);
    }
    const machine = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(machine.status, 201);
    assert.equal((await api('DELETE', `/v1/machines/${machine.body.id}`)).status, 200);
  });

  it('a full disk: what needs room is refused, what runs goes on, and no byte is lost', { skip: !isRoot }, async () => {
    const machine = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    const doomed = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    const vm = read(`${home}/run/machines/${machine.id}/qemu.pid`);
    await startJob(api, doomed.id, 'sleep 1000');
    const before = remains(home);
    const filler = fill(home, 4 * 2 ** 20);

    const job = await startJob(api, machine.id, 'seq 1 2800000');
    await until('the output has filled the disk', () => freeBytes(home) < 64 * 1024);
    fillRest(filler);
    const refused = await api('POST', '/v1/machines', SMALL);
    assert.equal(refused.status, 503, JSON.stringify(refused.body));
    assert.match(refused.body.detail, /no disk space left/);
    const noJob = await api('POST', `/v1/machines/${machine.id}/execs`, { command: 'true' });
    assert.equal(noJob.status, 503, JSON.stringify(noJob.body));
    assert.match(noJob.body.detail, /no disk space left/);
    await assertNothingLeft(api, home, before);
    assert.equal((await api<Machine>('GET', `/v1/machines/${machine.id}`)).body.state, 'running');
    assert.equal((await api<Exec>('GET', `/v1/machines/${machine.id}/execs/${job}`)).body.status, 'running');

    // What gives room back is possible all the same.
    assert.equal((await api('DELETE', `/v1/machines/${doomed.id}`)).status, 200);
    assert.equal(existsSync(`${home}/machines/${doomed.id}`), false);

    rmSync(filler);
    assert.equal(await endOf(api, machine.id, job), 0);
    const expected = createHash('sha256');
    for (let line = 1; line <= 2_800_000; line++) expected.update(`${line}\n`);
    assert.equal(await hashOutput(api, machine.id, job), expected.digest('hex'));
    assert.equal(read(`${home}/run/machines/${machine.id}/qemu.pid`), vm, 'the same VM all the time');

    // The machine's own disk: its writes wait too, and it sees no error.
    const again = fill(home, 4 * 2 ** 20);
    const write = 'head -c 16000000 /dev/urandom > /root/x && sync && sha256sum </root/x && rm /root/x';
    const writing = await startJob(api, machine.id, write);
    await until('the machine has filled the disk', () => freeBytes(home) < 128 * 1024);
    rmSync(again);
    assert.equal(await endOf(api, machine.id, writing), 0);
    assert.equal(await endOf(api, machine.id, await startJob(api, machine.id, 'echo works')), 0);
    const next = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(next.status, 201);
    for (const { id } of [machine, next.body]) assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
  });

  it('Ctrl-C ends it all the same', async () => {
    service.child.kill('SIGINT');
    assert.equal((await service.ended).code, 0);
  });
});

describe('without root', () => {
  it('machines work with user networking, and Ctrl-C leaves nothing', { skip: !isRoot }, async () => {
    const home = homeOf('rootless');
    mkdirSync(home, { mode: 0o700 });
    execFileSync('chown', ['65534:65534', home]);
    const asNobody = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'];
    const service = start('rootless', { HOME: home }, asNobody);
    await service.ready;
    const api = apiOf(home);
    const machine = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    assert.equal(await endOf(api, machine.id, await startJob(api, machine.id, 'ip -4 address | grep -F "$IP"')), 0);
    service.child.kill('SIGINT');
    assert.equal((await service.ended).code, 0);
  });
});

const SMALL = { memory_mb: 128, rootfs_size_gb: 2 };

type Refusal = { code: string; detail: string };
type Api = <T = Refusal>(method: string, path: string, body?: object) => Promise<{ status: number; body: T }>;

/** The API of a service by what its data directory says, as the clients find it. */
function apiOf(home: string): Api {
  const { base_url, api_key } = JSON.parse(read(`${home}/credentials.json`)) as Record<string, string>;
  return async <T>(method: string, at: string, body?: object) => {
    const response = await fetch(`${base_url}${at}`, {
      method,
      headers: { authorization: `Bearer ${api_key}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    return { status: response.status, body: (await response.json()) as T };
  };
}

async function startJob(api: Api, machineId: string, command: string): Promise<string> {
  const { status, body } = await api<Exec>('POST', `/v1/machines/${machineId}/execs`, { command });
  assert.equal(status, 201, JSON.stringify(body));
  return body.id;
}

/** Its exit code; null when it had none. */
async function endOf(api: Api, machineId: string, jobId: string): Promise<number | null> {
  let job: Exec | undefined;
  await until(`job ${jobId} ends`, async () => {
    const answer = await api<Exec>('GET', `/v1/machines/${machineId}/execs/${jobId}?wait_ms=1000`);
    if (answer.status === 200) job = answer.body;
    return job !== undefined && job.status !== 'running';
  });
  return job?.exit_code ?? null;
}

async function hashOutput(api: Api, machineId: string, jobId: string): Promise<string> {
  const hash = createHash('sha256');
  for (let offset = 0, eof = false; !eof; ) {
    const query = `stream=stdout&offset=${offset}&limit=1048576`;
    const page = await api<ExecOutput>('GET', `/v1/machines/${machineId}/execs/${jobId}/output?${query}`);
    assert.equal(page.status, 200);
    hash.update(Buffer.from(page.body.data, 'base64'));
    ({ next_offset: offset, eof } = page.body);
  }
  return hash.digest('hex');
}

type Start = {
  child: ChildProcess;
  /** Resolves when it says that it is ready; rejects with its output when it ends first. */
  ready: Promise<void>;
  /** `sentence`: the first line that it wrote to standard error. */
  ended: Promise<{ code: number | null; sentence: string; output: string }>;
  end(): Promise<void>;
};

/** `npm start` on a data directory of that name, on ports that are free unless `env` names some. */
function start(name: string, env: NodeJS.ProcessEnv = {}, prefix: string[] = [], args: string[] = []): Start {
  const checkout = prefix.length > 0 ? checkoutForOthers() : CHECKOUT;
  const node = path.join(checkout, path.relative(CHECKOUT, process.execPath));
  const [program = '', ...rest] = [...prefix, node, path.join(checkout, 'scripts/start.mjs'), ...args];
  const [port, metricsPort] = nextPorts();
  const inherited = Object.entries(process.env).filter(([variable]) => !variable.startsWith('SANDBAR_'));
  const child = spawn(program, rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...Object.fromEntries(inherited),
      SANDBAR_HOME: homeOf(name),
      SANDBAR_CACHE: cache,
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
      ...env,
    },
  });
  let output = '';
  let errors = '';
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    if (output.includes('Ready in')) ready.resolve();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    errors += text;
  });
  const ended = new Promise<{ code: number | null; sentence: string; output: string }>((resolve) => {
    child.once('close', (code) => {
      ready.reject(new Error(`it ended with ${code}:\n${output}`));
      resolve({ code, sentence: errors.trim().split('\n')[0] ?? '', output });
    });
  });
  const handle: Start = {
    child,
    ready: ready.promise,
    ended,
    async end() {
      child.kill('SIGINT');
      await ended;
    },
  };
  started.push(handle);
  return handle;
}

let lastPort = 20_000 + (process.pid % 5_000) * 2;
/** Below the range that the kernel hands out, so that nobody gets them by chance. */
function nextPorts(): [number, number] {
  lastPort += 2;
  return [lastPort, lastPort + 1];
}

function homeOf(name: string): string {
  return path.join(folder, name);
}

function program(name: string, script: string): string {
  const file = path.join(folder, name);
  writeFileSync(file, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return file;
}

/** The checkout where another account sees it, whoever may enter the folders above it. Read-only: it is not a copy. */
function checkoutForOthers(): string {
  const at = homeOf('checkout');
  if (existsSync(at)) return at;
  mkdirSync(at);
  execFileSync('mount', ['-o', 'bind,ro', CHECKOUT, at]);
  mounts.push(at);
  return at;
}

function mountDisk(name: string, options: string): string {
  const at = homeOf(name);
  mkdirSync(at);
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'sandbar-test', at]);
  mounts.push(at);
  return at;
}

/** A cache of our own by hard links: files can be deleted from it, and the real one does not notice. */
function copyCache(): void {
  const real = defaultCache(process.env, isRoot);
  mkdirSync(cache);
  for (const name of readdirSync(real)) {
    const [from, to] = [path.join(real, name), path.join(cache, name)];
    if (name === 'go') symlinkSync(from, to);
    else execFileSync('sh', ['-c', 'cp -al "$0" "$1" 2>/dev/null || cp -a --sparse=always "$0" "$1"', from, to]);
  }
}

function imageFiles(): { manifest: string; rootfs: string; initramfs: string } {
  const stack = path.join(cache, 'images', 'base');
  const build = path.join(stack, readlinkSync(path.join(stack, 'current')));
  const manifest = path.join(build, 'manifest.json');
  const { rootfs, initramfs } = JSON.parse(read(manifest)) as Record<'rootfs' | 'initramfs', { path: string }>;
  return { manifest, rootfs: path.resolve(build, rootfs.path), initramfs: path.resolve(build, initramfs.path) };
}

/** Fills the disk to `leave` free bytes with one file, and returns it. */
function fill(disk: string, leave: number): string {
  const filler = path.join(disk, 'filler');
  writeFileSync(filler, '');
  fillRest(filler);
  truncateSync(filler, readFileSync(filler).length - leave);
  return filler;
}

function fillRest(filler: string): void {
  for (const size of [2 ** 20, 4096]) {
    try {
      for (;;) appendFileSync(filler, Buffer.alloc(size, 1));
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
    }
  }
}

function freeBytes(disk: string): number {
  const { bavail, bsize } = statfsSync(disk);
  return bavail * bsize;
}

/** What a machine leaves on its host while it is there. */
function remains(home: string): string {
  const folders = ['machines', 'run/machines'].map((name) => readdirSync(path.join(home, name)).sort().join());
  return [...folders, tapsOf(home)].join(' / ');
}

async function assertNothingLeft(api: Api, home: string, before: string): Promise<void> {
  const ids = before.split(' / ')[0]?.split(',').filter(Boolean) ?? [];
  let now = '';
  await until('nothing is left', async () => {
    const { body } = await api<{ machines: Machine[] }>('GET', '/v1/machines');
    now = remains(home);
    return now === before && body.machines.length === ids.length;
  }).catch((error: unknown) => assert.fail(`${error}: ${now} instead of ${before}`));
}

function idOf(home: string): string {
  return createHash('sha256').update(home).digest('hex').slice(0, 8);
}

function tapsOf(home: string): string {
  const ports = `/sys/class/net/sbr${idOf(home)}/brif`;
  return existsSync(ports) ? readdirSync(ports).sort().join() : '';
}

function homes(): string[] {
  return started.length === 0 ? [] : readdirSync(folder).map(homeOf);
}

function bridgesOfOurs(): Set<string> {
  return new Set(homes().map((home) => `sbr${idOf(home)}`));
}

function isOurs(table: string): boolean {
  return homes().some((home) => table.includes(`sandbar_${idOf(home)}`));
}

function interfaces(): Set<string> {
  return new Set(readdirSync('/sys/class/net').filter((name) => /^(sbr|sbt)/.test(name)));
}

function nftTables(): Set<string> {
  if (!isRoot) return new Set();
  return new Set(execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' }).split('\n').filter(Boolean));
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** A check that fails counts as not yet. */
async function until(what: string, isTrue: () => boolean | Promise<boolean>, withinMs = 40_000): Promise<void> {
  for (const deadline = Date.now() + withinMs; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    if (await (async () => isTrue())().catch(() => false)) return;
    if (Date.now() > deadline) throw new Error(`not in ${withinMs} ms: ${what}`);
  }
}
