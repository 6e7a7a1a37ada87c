// Small JSON records that must never be seen half-written: written beside and renamed into place.
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { diskFull, isDiskFull } from './overlay.ts';

/** Replaces the record as a whole. Throws `fleet_capacity` on a full disk, and leaves the old one then. */
export function writeRecord(path: string, record: unknown): void {
  replace(path, record, () => {});
}

/**
 * The same for a record that must survive a power cut, and so does every rename before it in this file system: for what
 * says which files make a disk. It takes a millisecond or two.
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

/** The record, or undefined when there is none. Throws when what is there is not JSON. */
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
