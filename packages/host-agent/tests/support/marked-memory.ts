// Memory files of fake templates. They have known bytes at a known position, so that a restore can check that it got
// the right file.
import { closeSync, openSync, readSync, writeSync } from 'node:fs';

const MARK = Buffer.alloc(4096, 'sandbar');
const MARK_AT = 3 * 4096;

export function writeMark(path: string): void {
  const fd = openSync(path, 'r+');
  writeSync(fd, MARK, 0, MARK.length, MARK_AT);
  closeSync(fd);
}

/** Returns whether the descriptor refers to a marked file. A closed descriptor does not. */
export function isMarked(fd: number): boolean {
  const found = Buffer.alloc(MARK.length);
  try {
    readSync(fd, found, 0, found.length, MARK_AT);
  } catch {}
  return found.equals(MARK);
}
