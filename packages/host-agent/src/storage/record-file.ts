// Small JSON records that must never be seen half-written: written beside and renamed into place.
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { diskFull, isDiskFull } from './overlay.ts';

/** Replaces the record as a whole. Throws `fleet_capacity` on a full disk, and leaves the old one then. */
export function writeRecord(path: string, record: unknown): void {
  const partial = `${path}.partial`;
  try {
    writeFileSync(partial, JSON.stringify(record), { mode: 0o600 });
    renameSync(partial, path);
  } catch (error) {
    rmSync(partial, { force: true });
    throw isDiskFull(error) ? diskFull(error) : error;
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
