// Large files of which most was never written: their holes are neither read, nor checked, nor written. The first read of a
// hole costs as much as one of data, because the kernel fills its cache with zeros (2.4 s for a gigabyte of them).
import { write as writeCallback } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { constants } from 'node:os';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import koffi from 'koffi';

/** What is read and written at once, bytes; blocks begin at multiples of it. */
export const BLOCK_BYTES = 1024 * 1024;
export const PAGE_BYTES = 4096;
/** Zeros that are fewer are written: another call costs more than four pages do. */
const MIN_HOLE_BYTES = 4 * PAGE_BYTES;
const ZERO = Buffer.alloc(BLOCK_BYTES);
/** Blocks that are worked on at the same time. */
export const LANES = 2;
/** From linux/fs.h. */
const SEEK_DATA = 3;

const write = promisify(writeCallback);
const libc = koffi.load('libc.so.6');
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)');

/** A block of a file; `bytes` is only valid while it is worked on. */
export type Block = { offset: number; bytes: Buffer };

/** Whether these bytes of a buffer, at most a block, are all zero. */
export function isZero(buffer: Buffer, from = 0, to = buffer.length): boolean {
  return buffer.compare(ZERO, 0, to - from, from, to) === 0;
}

/**
 * Works on the blocks of the first `size` bytes that have data, some at a time and in no order that counts on. Throws what
 * `work` throws; no work is under way any more then.
 */
export async function forUsedBlocks(
  file: FileHandle,
  size: number,
  work: (block: Block) => Promise<unknown>,
): Promise<void> {
  let at = 0;
  const takeOffset = (): number | undefined => {
    const data = at < size ? nextData(file.fd, at) : undefined;
    if (data === undefined || data >= size) return undefined;
    const offset = data - (data % BLOCK_BYTES);
    at = offset + BLOCK_BYTES;
    return offset;
  };
  const lane = async () => {
    const buffer = Buffer.allocUnsafe(BLOCK_BYTES);
    try {
      for (let offset = takeOffset(); offset !== undefined; offset = takeOffset()) {
        const bytes = buffer.subarray(0, Math.min(BLOCK_BYTES, size - offset));
        await readAll(file, bytes, offset);
        await work({ offset, bytes });
      }
    } catch (error) {
      at = size;
      throw error;
    }
  };
  await allSettled(Array.from({ length: LANES }, lane));
}

/** Like `Promise.all`, but a failure is told when nothing is under way any more: files may be closed then. */
export async function allSettled(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}

/** Writes what is not zero to a place of a file (its descriptor) that holds zeros; returns the bytes written. */
export async function writeUsed(fd: number, bytes: Buffer, offset: number): Promise<number> {
  let written = 0;
  for (const [from, to] of usedRuns(bytes)) {
    await writeAll(fd, bytes.subarray(from, to), offset + from);
    written += to - from;
  }
  return written;
}

/** A sum of what is not zero and of where it is, whatever of the rest is a hole; 8 hexadecimal digits. */
export class SparseSum {
  readonly #blocks: { offset: number; sum: number }[] = [];

  /** Each block once, in any order. */
  add({ offset, bytes }: Block): void {
    if (!isZero(bytes)) this.#blocks.push({ offset, sum: crc32(bytes) });
  }

  digest(): string {
    const sorted = this.#blocks.sort((a, b) => a.offset - b.offset);
    const text = sorted.map(({ offset, sum }) => `${offset}:${sum}`).join();
    return crc32(text).toString(16).padStart(8, '0');
  }
}

/** The {@link SparseSum} of the first `size` bytes of a file. */
export async function sumOfSparseFile(path: string, size: number): Promise<string> {
  const file = await open(path, 'r');
  try {
    const sum = new SparseSum();
    await forUsedBlocks(file, size, async (block) => sum.add(block));
    return sum.digest();
  } finally {
    await file.close();
  }
}

async function readAll(file: FileHandle, bytes: Buffer, offset: number): Promise<void> {
  const { bytesRead } = await file.read(bytes, 0, bytes.length, offset);
  if (bytesRead < bytes.length) throw new Error(`the file ends at ${offset + bytesRead} bytes`);
}

/** Where the next data begin; undefined: nothing but a hole comes. A file system that does not know has data everywhere. */
export function nextData(fd: number, from: number): number | undefined {
  const found = Number(lseek(fd, from, SEEK_DATA));
  if (found >= 0) return found;
  if (koffi.errno() === constants.errno.ENXIO) return undefined;
  return from;
}

/** Runs of pages that are worth writing. */
function* usedRuns(bytes: Buffer): Generator<[from: number, to: number]> {
  let from = -1;
  let to = 0;
  for (let at = 0; at < bytes.length; at += PAGE_BYTES) {
    const end = Math.min(at + PAGE_BYTES, bytes.length);
    if (isZero(bytes, at, end)) continue;
    if (from >= 0 && at - to >= MIN_HOLE_BYTES) {
      yield [from, to];
      from = -1;
    }
    if (from < 0) from = at;
    to = end;
  }
  if (from >= 0) yield [from, to];
}

/** Writes all of it; `fd` may be a file that is only memory. */
export async function writeAll(fd: number, bytes: Buffer, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await write(fd, bytes, done, bytes.length - done, offset + done);
    done += bytesWritten;
  }
}
