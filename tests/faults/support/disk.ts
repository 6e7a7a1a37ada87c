// Fills a disk with one large file, for tests of a full disk.
import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Fills the disk with one file until `leave` bytes are free. Returns the path of the file. */
export function fill(disk: string, leave: number): string {
  const filler = path.join(disk, 'filler');
  writeFileSync(filler, '');
  fillRest(filler);
  truncateSync(filler, readFileSync(filler).length - leave);
  return filler;
}

export function fillRest(filler: string): void {
  for (const size of [2 ** 20, 4096]) {
    try {
      for (;;) appendFileSync(filler, Buffer.alloc(size, 1));
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
    }
  }
}

export function freeBytes(disk: string): number {
  const { bavail, bsize } = statfsSync(disk);
  return bavail * bsize;
}
