// Starts services as a user does, on free ports and on new data directories in a temporary folder. After the tests of a
// file it ends them all and checks that they left no process, mount, interface or nftables table on the host.
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { after, before } from 'node:test';
import { defaultCache } from '@sandbar/contract/home.ts';
import { CACHE_FOLDERS } from '@sandbar/service/background/uninstall.ts';
import { HOMES_FOLDER, markNewCache } from '@sandbar/service/cache-homes.ts';
import { networksOf } from './leftovers.ts';
import { read, until } from './until.ts';

const CHECKOUT = path.resolve(import.meta.dirname, '..', '..', '..');
export const IS_ROOT = process.getuid?.() === 0;
/** Command prefix that runs a program as the user `nobody`. */
export const AS_NOBODY = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'];
/** How many ports each test process has for itself. */
const PORTS = 40;

// The name is short, because the path of a data directory may have at most 76 bytes.
export const folder = mkdtempSync('/tmp/sbf-');
chmodSync(folder, 0o755);
const cache = path.join(folder, 'cache');
const started: Start[] = [];
const mounts: string[] = [];

before(() => copyCache());

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
  await until('no interface or nftables table is left', () => networksOf(readdirSync(folder).map(homeOf)).length === 0);
  rmSync(folder, { recursive: true, force: true });
});

// `after` does not run when the test run is aborted by SIGTERM, so end the services and remove the files here too.
process.once('SIGTERM', async () => {
  await Promise.all(started.map((start) => start.end()));
  for (const mount of mounts) execFileSync('umount', [mount]);
  rmSync(folder, { recursive: true, force: true });
  process.exit(143);
});

export type Start = {
  child: ChildProcess;
  /** Resolves when the service prints that it is ready. Rejects with its output when it ends before that. */
  ready: Promise<void>;
  /** Resolves when the process has ended. `sentence`: the first line that it wrote to standard error. */
  ended: Promise<{ code: number | null; sentence: string; output: string }>;
  end(): Promise<void>;
};

/**
 * Runs `npm start` with the data directory `homeOf(name)`. `env` adds or overrides variables, such as the ports, which
 * are free ones by default. `prefix` is a command that runs the service, such as {@link AS_NOBODY}; `args` go to `npm
 * start`.
 */
export function start(name: string, env: NodeJS.ProcessEnv = {}, prefix: string[] = [], args: string[] = []): Start {
  const checkout = prefix.length > 0 ? checkoutForOthers() : CHECKOUT;
  const node = path.join(checkout, path.relative(CHECKOUT, process.execPath));
  const [program = '', ...rest] = [...prefix, node, path.join(checkout, 'scripts/start.mjs'), ...args];
  const child = spawn(program, rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...environmentOf(name), ...env },
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

/** The environment of a service with the data directory `homeOf(name)`, on ports that no other call returns. */
export function environmentOf(name: string): NodeJS.ProcessEnv {
  const [port, metricsPort] = nextPorts();
  const inherited = Object.entries(process.env).filter(([variable]) => !variable.startsWith('SANDBAR_'));
  return {
    ...Object.fromEntries(inherited),
    SANDBAR_HOME: homeOf(name),
    SANDBAR_CACHE: cache,
    SANDBAR_LISTEN: `127.0.0.1:${port}`,
    SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
    // The disks of these tests are smaller than the least reserve.
    SANDBAR_DISK_RESERVE_MB: '0',
    // They are also smaller than a sixteenth of a machine's disk.
    SANDBAR_DISK_OVERCOMMIT: '1000',
  };
}

let lastPort = 20_000 + (process.pid % 300) * PORTS;
/**
 * Two unused ports. They are below the kernel's range of ephemeral ports, so that no other process gets them by chance.
 */
function nextPorts(): [number, number] {
  lastPort += 2;
  return [lastPort, lastPort + 1];
}

export function homeOf(name: string): string {
  return path.join(folder, name);
}

export function program(name: string, script: string): string {
  const file = path.join(folder, name);
  writeFileSync(file, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return file;
}

/**
 * Mounts the checkout read-only in the folder of the test, because another user may not have access to the folders
 * above the real one. Returns the path of the mount.
 */
function checkoutForOthers(): string {
  const at = homeOf('checkout');
  if (existsSync(at)) return at;
  mkdirSync(at);
  execFileSync('mount', ['-o', 'bind,ro', CHECKOUT, at]);
  mounts.push(at);
  return at;
}

export function mountDisk(name: string, options: string): string {
  const at = homeOf(name);
  mkdirSync(at);
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'sandbar-test', at]);
  mounts.push(at);
  return at;
}

/**
 * Copies the service's cache with hard links, so that tests can delete files without harm to the real cache. No data
 * directory uses the copy yet.
 */
async function copyCache(): Promise<void> {
  const real = defaultCache(process.env, IS_ROOT);
  mkdirSync(cache);
  await markNewCache(cache);
  for (const name of readdirSync(real).filter((one) => CACHE_FOLDERS.includes(one) && one !== HOMES_FOLDER)) {
    const [from, to] = [path.join(real, name), path.join(cache, name)];
    if (name === 'go') symlinkSync(from, to);
    else execFileSync('sh', ['-c', 'cp -al "$0" "$1" 2>/dev/null || cp -a --sparse=always "$0" "$1"', from, to]);
  }
}

export function imageFiles(): { manifest: string; rootfs: string; initramfs: string } {
  const stack = path.join(cache, 'images', 'base');
  const build = path.join(stack, readlinkSync(path.join(stack, 'current')));
  const manifest = path.join(build, 'manifest.json');
  const { rootfs, initramfs } = JSON.parse(read(manifest)) as Record<'rootfs' | 'initramfs', { path: string }>;
  return { manifest, rootfs: path.resolve(build, rootfs.path), initramfs: path.resolve(build, initramfs.path) };
}
