// Removes the service of a data directory from this computer: its processes, the network and control groups of its
// machines, and on request the data directory and the cache.
import { readdirSync, readFileSync, realpathSync, rmdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { removeFolder } from '@sandbar/host-agent/images/cache.ts';
import { removeHost } from '@sandbar/host-agent/remove-host.ts';
import { forgetHome, HOMES_FOLDER, reasonToKeep } from '../cache-homes.ts';
import type { ServiceConfig } from '../config.ts';
import { hasErrorCode, messageOf, Problem } from '../problem.ts';
import { mountPointOf, removeMountPoint } from '../supervise/launch.ts';
import { commandLineOf } from '../supervise/process-identity.ts';
import { stopService } from './stop.ts';

/** Files of the data directory that homePaths does not list. */
const MORE_FILES = ['accelerator.json', 'addresses.json', 'forwarding.json', 'restore'];
/** Endings of files that a crash left half-written. */
const UNFINISHED = /\.(partial|unfinished|[0-9a-f]{8})$/;
/** What the service keeps in the cache. */
export const CACHE_FOLDERS = [
  ...['agent', 'dashboard', 'go', HOMES_FOLDER, 'images', 'import', 'initramfs', 'kernel', 'restore', 'rootfs'],
];

/**
 * Stops the service and removes what it has on the host. Machines that still run are ended. With `isPurge` it also
 * removes the data directory, and the cache unless another data directory may need it, but no file that the service did
 * not make. `report` gets a line for each thing that is kept. Throws Problem; nothing is touched when the folder is not a data directory.
 */
export async function uninstall(
  config: ServiceConfig,
  isPurge: boolean,
  report: (line: string) => void,
): Promise<void> {
  const { home, cacheDir, isRoot } = config;
  assertOurs(home);
  const realHome = realpathSync(home);
  await stopService(home, report);
  try {
    await removeHost(home, isRoot);
    if (isRoot) removeMountPoint(mountPointOf(home));
    if (!isPurge) return;
    await removeKnown(home, isOfHome(home), report);
    await purgeCache(cacheDir, realHome, report);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(`Not everything was removed (${messageOf(error)}): mend that and run it again`);
  }
}

/**
 * Throws Problem unless the folder is a data directory: it has host.json with the host id or, when its first start ended
 * before that, the secret with the credentials or the database.
 */
export function assertOurs(home: string): void {
  const { secret, credentials, postgresData } = homePaths(home);
  if (hasHostState(home)) return;
  if (isFile(secret) && (isFile(credentials) || isFile(path.join(postgresData, 'PG_VERSION')))) return;
  throw new Problem(
    `${home} is not a data directory of Sandbar: it has no host.json with a host id (SANDBAR_HOME names another one)`,
  );
}

function hasHostState(home: string): boolean {
  const { hostState } = homePaths(home);
  try {
    const state = JSON.parse(readFileSync(hostState, 'utf8')) as { hostId?: unknown } | null;
    return typeof state?.hostId === 'string';
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT', 'ENOTDIR') || error instanceof SyntaxError) return false;
    throw cannotRead(hostState, error);
  }
}

function isFile(file: string): boolean {
  try {
    return statSync(file, { throwIfNoEntry: false })?.isFile() === true;
  } catch (error) {
    throw cannotRead(file, error);
  }
}

function cannotRead(file: string, error: unknown): Problem {
  return new Problem(`Cannot read ${file} (${messageOf(error)}): run this as its owner`);
}

/** Whether the service made an entry of this name in the data directory. */
function isOfHome(home: string): (name: string) => boolean {
  const listed = Object.values(homePaths(home)).filter((value) => typeof value === 'string');
  const names = new Set([...MORE_FILES, ...listed.map((file) => path.relative(home, file).split('/')[0])]);
  return (name) => names.has(name.replace(UNFINISHED, '')) || /^\.write-probe-\d+$/.test(name);
}

/** Removes the known entries of a folder, then the folder. A folder with other entries stays, and so does a mount. */
async function removeKnown(
  folder: string,
  isKnown: (name: string) => boolean,
  report: (line: string) => void,
): Promise<void> {
  const names = entriesOf(folder);
  if (names === undefined) return;
  for (const name of names.filter(isKnown)) await removeFolder(path.join(folder, name));
  const kept = names.filter((name) => !isKnown(name));
  if (kept.length > 0) {
    report(`kept ${folder}, because it has other files: ${kept.join(', ')}`);
    return;
  }
  try {
    rmdirSync(folder);
  } catch (error) {
    report(`kept the empty folder ${folder} (${messageOf(error)})`);
  }
}

function entriesOf(folder: string): string[] | undefined {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Removes the cache when no other data directory needs it. `home`: the real path of the one that was removed. */
async function purgeCache(cacheDir: string, home: string, report: (line: string) => void): Promise<void> {
  if (entriesOf(cacheDir) === undefined) return;
  const other = otherHomeWith(cacheDir);
  const reason = other === undefined ? reasonToKeep(cacheDir, home) : `the service of ${other} uses it`;
  if (reason === undefined) {
    await removeKnown(cacheDir, (name) => CACHE_FOLDERS.includes(name), report);
    return;
  }
  report(`kept ${cacheDir}, because ${reason}`);
  await forgetHome(cacheDir, home);
}

/**
 * The data directory of another service that runs and uses the cache, or undefined. A service of an older version has
 * made no record.
 */
function otherHomeWith(cacheDir: string): string | undefined {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    if (!commandLineOf(Number(pid)).some((arg) => arg.endsWith('/packages/host-agent/src/main.ts'))) continue;
    const env = environmentOf(pid);
    if (env.SANDBAR_CACHE === cacheDir) return env.SANDBAR_HOME ?? `process ${pid}`;
  }
  return undefined;
}

/** Empty when the process has ended or belongs to another user. */
function environmentOf(pid: string): Record<string, string> {
  try {
    const entries = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    return Object.fromEntries(entries.map((entry) => [entry.split('=', 1)[0], entry.slice(entry.indexOf('=') + 1)]));
  } catch {
    return {};
  }
}
