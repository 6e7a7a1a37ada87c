// The file that a restore writes first and removes last. While it exists, the service refuses to start, because the data
// directory may hold only a part of the back-up.
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { writeAtomically } from '../private-file.ts';
import { hasErrorCode, Problem } from '../problem.ts';

const fileIn = (home: string): string => path.join(home, 'restore.unfinished');

/** Writes the names of the entries that a restore is about to make. The file is on disk when this resolves. */
export async function noteRestore(home: string, entries: readonly string[]): Promise<void> {
  await writeAtomically(fileIn(home), `${entries.join('\n')}\n`);
}

/** The entries that an interrupted restore may have made. Empty when there was none. */
export function entriesOfUnfinished(home: string): string[] {
  try {
    return readFileSync(fileIn(home), 'utf8').split('\n').filter(Boolean);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}

export function noteRestored(home: string): void {
  rmSync(fileIn(home), { force: true });
}

/** Throws Problem when a restore of the data directory has not ended. */
export function assertRestored(home: string): void {
  if (!existsSync(fileIn(home))) return;
  throw new Problem(`The restore of ${home} has not ended: run the same sandbar admin restore again`);
}
