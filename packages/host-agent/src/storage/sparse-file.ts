// Processes large files that consist mostly of holes, and skips the holes. Reading a hole for the first time costs as
// much as reading data, because the kernel fills its cache with zeros (2.4 s per gigabyte).
import { write as writeCallback } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { constants } from 'node:os';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import koffi from 'koffi';

/** Size in bytes of the blocks that are read and written at once. Blocks begin at multiples of this size. */
export const BLOCK_BYTES = 1024 * 1024;
export const PAGE_BYTES = 4096;
/** Shorter runs of zeros are written, because an additional system call costs more than writing four pages. */
const MIN_HOLE_BYTES = 4 * PAGE_BYTES;
const ZERO = Buffer.alloc(BLOCK_BYTES);
/** How many blocks are processed in parallel. */
export const LANES = 2;
/** Constant from linux/fs.h, which Node does not export. */
const SEEK_DATA = 3;

const write = promisify(writeCallback);
const libc = koffi.load('libc.so.6');
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)');

/** A block of a file. `bytes` is reused after the callback, so do not keep it. */
export type Block = { offset: number; bytes: Buffer };

/** Whether a part of a buffer contains only zeros. The part may be at most one block long. */
export function isZero(buffer: Buffer, from = 0, to = buffer.length): boolean {
  return buffer.compare(ZERO, 0, to - from, from, to) === 0;
}

/**
 * Calls `work` for every block with data within the first `size` bytes, several in parallel and in no particular order.
 * After an error it waits for the running calls and throws the error.
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

/** Like `Promise.all`, but rejects only after all promises have settled. The caller can then close files safely. */
export async function allSettled(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}

/**
 * Writes the parts of `bytes` that are not zero to the file `fd` at `offset`. The file must contain zeros there.
 * Returns the number of bytes written.
 */
export async function writeUsed(fd: number, bytes: Buffer, offset: number): Promise<number> {
  let written = 0;
  for (const [from, to] of usedRuns(bytes)) {
    await writeAll(fd, bytes.subarray(from, to), offset + from);
    written += to - from;
  }
  return written;
}

/**
 * A checksum over the positions and contents of all blocks that are not zero, as 8 hex digits. It does not depend on
 * which zeros are stored as holes.
 */
export class SparseSum {
  readonly #blocks: { offset: number; sum: number }[] = [];

  /** Adds a block. Add each block once, in any order. */
  add({ offset, bytes }: Block): void {
    if (!isZero(bytes)) this.#blocks.push({ offset, sum: crc32(bytes) });
  }

  digest(): string {
    const sorted = this.#blocks.sort((a, b) => a.offset - b.offset);
    const text = sorted.map(({ offset, sum }) => `${offset}:${sum}`).join();
    return crc32(text).toString(16).padStart(8, '0');
  }
}

/** Returns the {@link SparseSum} of the first `size` bytes of a file. */
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

/**
 * Returns the position of the next data at or after `from`, or undefined when only holes follow. Returns `from` on file
 * systems that do not support SEEK_DATA.
 */
export function nextData(fd: number, from: number): number | undefined {
  const found = Number(lseek(fd, from, SEEK_DATA));
  if (found >= 0) return found;
  if (koffi.errno() === constants.errno.ENXIO) return undefined;
  return from;
}

/** Yields the parts of a block to write. Short runs of zeros are included. */
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

/** Writes the whole buffer at `offset`. `fd` may be a memory file. */
export async function writeAll(fd: number, bytes: Buffer, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await write(fd, bytes, done, bytes.length - done, offset + done);
    done += bytesWritten;
  }
}
