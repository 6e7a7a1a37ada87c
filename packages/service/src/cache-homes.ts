// Records in the cache which data directories use it. The disks in a data directory need the images in the cache, also
// while its service is stopped. So a purge of one data directory keeps the cache that another one uses.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { writeAtomically } from './private-file.ts';
import { hasErrorCode, messageOf } from './problem.ts';

/** The folder of the cache with a file for each data directory; the file contains the path. */
export const HOMES_FOLDER = 'homes';
/**
 * A file in that folder. It exists when every data directory that uses the cache has a record. Without it, an older
 * version without records may have used the cache.
 */
const COMPLETE = 'complete';

/** Records that a data directory uses the cache. `home`: its real path. Call it before the cache gets images. */
export async function recordHome(cacheDir: string, home: string): Promise<void> {
  const file = recordOf(cacheDir, home);
  await markNewCache(cacheDir);
  if (!existsSync(file)) await writeAtomically(file, home);
}

/** Makes the folder of the records. No disk needs a cache without images, so then the records are complete. */
export async function markNewCache(cacheDir: string): Promise<void> {
  const folder = path.join(cacheDir, HOMES_FOLDER);
  await mkdir(folder, { recursive: true });
  if (!existsSync(path.join(cacheDir, 'images'))) await writeFile(path.join(folder, COMPLETE), '');
}

/** Removes the record of a data directory. `home`: its real path. */
export async function forgetHome(cacheDir: string, home: string): Promise<void> {
  await rm(recordOf(cacheDir, home), { force: true });
}

/**
 * Why a purge of a data directory keeps the cache, or undefined when no other data directory needs it. `home`: its real
 * path.
 */
export function reasonToKeep(cacheDir: string, home: string): string | undefined {
  const byHand = `If no other one does, remove it by hand: rm -rf '${cacheDir}'`;
  const folder = path.join(cacheDir, HOMES_FOLDER);
  if (!existsSync(recordOf(cacheDir, home))) return `it has no record of ${home}. Others may use it. ${byHand}`;
  if (!existsSync(path.join(folder, COMPLETE))) {
    return `it had images before it had these records, so others may use it. ${byHand}`;
  }
  for (const name of readdirSync(folder).filter((one) => /^[0-9a-f]{64}$/.test(one))) {
    try {
      const other = readFileSync(path.join(folder, name), 'utf8');
      if (other !== home && mayHaveDisks(other)) return `the service of ${other} uses it`;
    } catch (error) {
      return `the record ${path.join(folder, name)} cannot be checked (${messageOf(error)})`;
    }
  }
  return undefined;
}

/** Whether the data directory exists and its host agent has run, so that it may have disks. Throws if it cannot look. */
function mayHaveDisks(home: string): boolean {
  const { hostState, machines } = homePaths(home);
  return [hostState, machines].some((name) => {
    try {
      statSync(name);
      return true;
    } catch (error) {
      if (hasErrorCode(error, 'ENOENT', 'ENOTDIR')) return false;
      throw error;
    }
  });
}

function recordOf(cacheDir: string, home: string): string {
  return path.join(cacheDir, HOMES_FOLDER, createHash('sha256').update(home).digest('hex'));
}
