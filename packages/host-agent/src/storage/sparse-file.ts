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
/** From linux/fs.h. */
const SEEK_DATA = 3;

const write = promisify(writeCallback);
const libc = koffi.load('libc.so.6');
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)');

/** A block of a file; `bytes` is only valid until the next one is asked for. */
export type Block = { offset: number; bytes: Buffer };

/** Whether these bytes of a buffer, at most a block, are all zero. */
export function isZero(buffer: Buffer, from = 0, to = buffer.length): boolean {
  return buffer.compare(ZERO, 0, to - from, from, to) === 0;
}

/** The blocks of the first `size` bytes that have data, in order; the next is read while one is worked on. */
export async function* usedBlocks(file: FileHandle, size: number): AsyncGenerator<Block> {
  const buffers = [Buffer.allocUnsafe(BLOCK_BYTES), Buffer.allocUnsafe(BLOCK_BYTES)] as const;
  let next = readUsedBlock(file, 0, size, buffers[0]);
  try {
    for (let turn = 1; ; turn++) {
      const block = await next;
      if (!block) return;
      next = readUsedBlock(file, block.offset + BLOCK_BYTES, size, buffers[turn % 2 === 0 ? 0 : 1]);
      yield block;
    }
  } finally {
    // Whoever stops early may close the file at once.
    await next.catch(() => {});
  }
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
  #sum = 0;

  /** Blocks in their order. */
  add({ offset, bytes }: Block): void {
    if (isZero(bytes)) return;
    const place = Buffer.alloc(8);
    place.writeBigUInt64LE(BigInt(offset));
    this.#sum = crc32(bytes, crc32(place, this.#sum));
  }

  digest(): string {
    return this.#sum.toString(16).padStart(8, '0');
  }
}

/** The {@link SparseSum} of the first `size` bytes of a file. */
export async function sumOfSparseFile(path: string, size: number): Promise<string> {
  const file = await open(path, 'r');
  try {
    const sum = new SparseSum();
    for await (const block of usedBlocks(file, size)) sum.add(block);
    return sum.digest();
  } finally {
    await file.close();
  }
}

async function readUsedBlock(file: FileHandle, from: number, size: number, buffer: Buffer): Promise<Block | undefined> {
  const data = nextData(file.fd, from);
  if (data === undefined || data >= size) return undefined;
  const offset = data - (data % BLOCK_BYTES);
  const length = Math.min(BLOCK_BYTES, size - offset);
  const { bytesRead } = await file.read(buffer, 0, length, offset);
  if (bytesRead < length) throw new Error(`the file ends at ${offset + bytesRead} bytes instead of ${size}`);
  return { offset, bytes: buffer.subarray(0, length) };
}

/** Where the next data begin; undefined: nothing but a hole comes. A file system that does not know has data everywhere. */
function nextData(fd: number, from: number): number | undefined {
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

async function writeAll(fd: number, bytes: Buffer, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await write(fd, bytes, done, bytes.length - done, offset + done);
    done += bytesWritten;
  }
}
