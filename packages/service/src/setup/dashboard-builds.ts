// Removes old builds of the dashboard from the cache. Beside each build is a pid file for every service that uses it, so
// a build never disappears while a service serves it, even when that service is older than all builds that are kept.
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode } from '../problem.ts';
import { readPidFile, removePidFile, writePidFile } from '../supervise/pid-file.ts';
import { isAlive } from '../supervise/process-identity.ts';

/** How many of the builds that were used last are kept, because developers go back and forth between versions. */
const KEPT = 5;
/** An unfinished build of this age belongs to a process that was killed, milliseconds. */
const ABANDONED_MS = 60 * 60_000;

const BUILD = /^[0-9a-f]{32}$/;
const UNFINISHED = /^[0-9a-f]{32}\.\w{6}$/;
const USER = /^([0-9a-f]{32})\.\d+\.pid$/;

/** Whether the folder has a build: the document of its pages is there. */
export const isComplete = (build: string): boolean => existsSync(path.join(build, 'index.html'));

/** Says that this process uses the build, for as long as the process runs. */
export function markInUse(build: string): void {
  writePidFile(`${build}.${process.pid}.pid`, process.pid);
}

/** `folder` contains all builds. The mtime of a build's folder is the time of its last use. */
export async function removeOldBuilds(folder: string): Promise<void> {
  const names = await readdir(folder);
  const used = new Set<string>();
  for (const name of names) {
    const [, build] = USER.exec(name) ?? [];
    if (build === undefined) continue;
    const file = path.join(folder, name);
    const user = readPidFile(file);
    if (user !== undefined && isAlive(user)) used.add(build);
    else removePidFile(file);
  }
  const builds = await byAge(
    folder,
    names.filter((name) => BUILD.test(name)),
  );
  const old = builds.slice(KEPT).filter(({ name }) => !used.has(name));
  const unfinished = await byAge(
    folder,
    names.filter((name) => UNFINISHED.test(name)),
  );
  const abandoned = unfinished.filter(({ usedMs }) => usedMs < Date.now() - ABANDONED_MS);
  for (const { name } of old) await removeBuild(path.join(folder, name));
  for (const { name } of abandoned) await rm(path.join(folder, name), { recursive: true, force: true });
}

/**
 * Removes a build if it exists. It first gets the name of an unfinished build, so that a removal that is interrupted
 * leaves nothing that looks like a build. A later start then removes the rest.
 */
export async function removeBuild(build: string): Promise<void> {
  const removed = `${build}.${randomBytes(3).toString('hex')}`;
  try {
    await rename(build, removed);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return;
    throw error;
  }
  await rm(removed, { recursive: true, force: true });
}

/** The newest first. Leaves out what another process removed meanwhile. */
async function byAge(folder: string, names: readonly string[]): Promise<{ name: string; usedMs: number }[]> {
  const found: { name: string; usedMs: number }[] = [];
  for (const name of names) {
    const facts = await stat(path.join(folder, name)).catch(() => undefined);
    if (facts) found.push({ name, usedMs: facts.mtimeMs });
  }
  return found.sort((one, other) => other.usedMs - one.usedMs);
}
