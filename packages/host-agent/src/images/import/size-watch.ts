/**
 * Ends a program when it has written too much. A limit on the size of a file does not stop a program that writes many
 * files, as skopeo does for an image with many layers.
 */
import { lstat, opendir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { hasErrorCode } from '../image-error.ts';

/** How often the sizes of the files are added up. A program writes at most a few gigabytes in this time. */
const INTERVAL_MS = 500;
/** The size with which every smaller file is counted, because an empty file takes room too. */
const FILE_BYTES = 4096;

/** Calls `onExceeded` once the files in `folder` have more than `bytes` together. Runs until `signal` is aborted. */
export async function watchSize(
  folder: string,
  bytes: number,
  onExceeded: () => void,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    if ((await sizeOf(folder, bytes)) > bytes) return onExceeded();
    await setTimeout(INTERVAL_MS, undefined, { signal }).catch(() => {});
  }
}

/**
 * Returns the size of all files in a folder, or some size above `enough`. Reads the folder entry by entry, because a
 * program may add files faster than they are read, and a list of all of them would never be complete.
 */
async function sizeOf(folder: string, enough: number): Promise<number> {
  let sum = 0;
  const entries = await opendir(folder, { bufferSize: 1000 }).catch(nothingIfGone);
  for await (const entry of entries ?? []) {
    const file = path.join(folder, entry.name);
    sum += Math.max((await lstat(file).catch(nothingIfGone))?.size ?? 0, FILE_BYTES);
    if (entry.isDirectory()) sum += await sizeOf(file, enough - sum);
    if (sum > enough) return sum;
  }
  return sum;
}

/** Ignores a missing file, because the program renames and removes files meanwhile. */
function nothingIfGone(error: unknown): undefined {
  if (!hasErrorCode(error, 'ENOENT')) throw error;
}
