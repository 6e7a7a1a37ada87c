// Reads and writes small JSON records. A record is written under another name and renamed, so it is never seen
// half-written.
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { diskFull, isDiskFull } from './overlay.ts';

/** Creates or replaces the record. Throws `fleet_capacity` on a full disk; the old record stays then. */
export function writeRecord(path: string, record: unknown): void {
  replace(path, record, () => {});
}

/**
 * Like {@link writeRecord}, but the record survives a power cut, and so do earlier renames in the same file system.
 * Used for records that name the files of a disk. Takes one or two milliseconds.
 */
export function writeRecordDurably(path: string, record: unknown): void {
  replace(path, record, syncFile);
  syncFile(dirname(path));
}

function replace(path: string, record: unknown, beforeRename: (partial: string) => void): void {
  const partial = `${path}.partial`;
  try {
    writeFileSync(partial, JSON.stringify(record), { mode: 0o600 });
    beforeRename(partial);
    renameSync(partial, path);
  } catch (error) {
    rmSync(partial, { force: true });
    throw isDiskFull(error) ? diskFull(error) : error;
  }
}

function syncFile(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Returns the record, or undefined when there is none. Throws when the file is not JSON. */
export function readRecord<T>(path: string): T | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return JSON.parse(text) as T;
}
