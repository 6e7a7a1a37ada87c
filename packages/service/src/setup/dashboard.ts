// Builds the dashboard for the control plane. The build is cached in a folder that is named after a hash of its
// sources, so each version is built only once.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, utimes } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, messageOf } from '../problem.ts';
import type { Say } from '../progress.ts';
import { isComplete, markInUse, removeBuild, removeOldBuilds } from './dashboard-builds.ts';

/** Folders and files below the checkout from which the dashboard is built. */
const SOURCES = ['packages/dashboard', 'packages/contract/src', 'package-lock.json'];
const SKIPPED = new Set(['node_modules', 'dist']);
const BUILD_MS = 120_000;
/** The finished build in an installed package, relative to its folder. A checkout has no such folder. */
export const BUILT_DASHBOARD = 'dashboard';

/**
 * Returns the folder with the built dashboard, or undefined when it cannot be built here. Then the API works without
 * it, and `say` gets the reason. After an abort of `signal` it ends the build and throws the signal's reason.
 */
export async function ensureDashboard(
  checkout: string,
  cacheDir: string,
  say: Say,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const built = path.join(checkout, BUILT_DASHBOARD);
  if (isComplete(built)) return built;
  const vite = path.join(checkout, 'node_modules', 'vite', 'bin', 'vite.js');
  if (!existsSync(vite)) {
    say('no dashboard: its build tool (vite) is not installed; npm install --include=dev in the checkout installs it');
    return undefined;
  }
  const folder = path.join(cacheDir, 'dashboard');
  try {
    await mkdir(folder, { recursive: true });
    const target = path.join(folder, await keyOf(checkout));
    await attempt('its build is not protected from other starts', say, async () => markInUse(target));
    if (!isComplete(target)) await buildInto(target, checkout, vite, signal);
    await attempt('its old builds stay in the cache', say, async () => {
      const now = new Date();
      await utimes(target, now, now);
      await removeOldBuilds(folder);
    });
    return target;
  } catch (error) {
    signal?.throwIfAborted();
    say(`no dashboard: ${messageOf(error)}`);
    return undefined;
  }
}

/**
 * Takes a step that the dashboard does not need to work. When it fails, `say` gets the reason. That happens, for
 * example, when another user has made the cache.
 */
async function attempt(consequence: string, say: Say, step: () => Promise<void>): Promise<void> {
  try {
    await step();
  } catch (error) {
    say(`${consequence}: ${messageOf(error)}`);
  }
}

/** Builds in a new folder and then gives it the name `target`, so that a folder with this name is always complete. */
async function buildInto(target: string, checkout: string, vite: string, signal?: AbortSignal): Promise<void> {
  const unfinished = await mkdtemp(`${target}.`);
  try {
    await build(checkout, vite, unfinished, signal);
    await makeReadable(unfinished);
    await rename(unfinished, target).catch(async (error: unknown) => {
      if (!hasErrorCode(error, 'EEXIST', 'ENOTEMPTY')) throw error;
      // Another start has built it meanwhile, and its folder is as good as this one.
      if (isComplete(target)) return;
      // It is the rest of an older build.
      await removeBuild(target);
      await rename(unfinished, target);
    });
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

/** Lets the user that the control plane runs as read the files, whatever the umask of this process is. */
async function makeReadable(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    await chmod(path.join(entry.parentPath, entry.name), entry.isDirectory() ? 0o755 : 0o644);
  }
}

async function keyOf(checkout: string): Promise<string> {
  const hash = createHash('sha256').update(process.version);
  for (const source of SOURCES) await addTo(hash, path.join(checkout, source), source);
  return hash.digest('hex').slice(0, 32);
}

/** Adds the names and contents of a file, or of all files in a folder, in an order that is always the same. */
async function addTo(hash: ReturnType<typeof createHash>, file: string, name: string): Promise<void> {
  const entries = await readdir(file, { withFileTypes: true }).catch(() => undefined);
  if (!entries) {
    hash.update(`${name}\0`).update(await readFile(file));
    return;
  }
  for (const entry of entries.map((one) => one.name).sort()) {
    if (!SKIPPED.has(entry)) await addTo(hash, path.join(file, entry), `${name}/${entry}`);
  }
}

/**
 * Runs Vite. Throws an Error with the end of its output when it fails, takes too long or is aborted. When this returns or
 * throws, Vite has ended.
 */
async function build(checkout: string, vite: string, outDir: string, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  const child = spawn(process.execPath, [vite, 'build', '--outDir', outDir, '--emptyOutDir', '--logLevel', 'warn'], {
    cwd: path.join(checkout, 'packages', 'dashboard'),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: BUILD_MS,
    killSignal: 'SIGKILL',
    signal,
    // Vite needs no secrets. Other variables, such as VITE_*, could change the build without changing its key.
    env: { PATH: process.env.PATH, HOME: process.env.HOME, NODE_ENV: 'production' },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += String(data)));
  // Node also emits this event at an abort, when Vite still runs. So wait for `close`, which comes after every error.
  child.once('error', (error) => (output += error.message));
  const { promise, resolve } = Promise.withResolvers<number | null>();
  child.once('close', resolve);
  const code = await promise;
  if (code !== 0) throw new Error(`its build failed (${code ?? 'ended'}): ${output.trim().slice(-500)}`);
}
