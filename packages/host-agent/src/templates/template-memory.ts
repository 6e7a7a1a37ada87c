// Copies a template's memory file into sealed memory, and finds on the way whether it is what it was: most of it is holes,
// which are neither copied nor hashed.
import { createHash } from 'node:crypto';
import { write as writeCallback } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { promisify } from 'node:util';
import { makeSealedMemory } from '../hypervisor/sealed-memory.ts';
import { nextData } from '../storage/sparse-file.ts';

const write = promisify(writeCallback);
const CHUNK_BYTES = 4 * 1024 * 1024;
const PAGE_BYTES = 4096;
const ZERO = Buffer.alloc(CHUNK_BYTES);

export type TemplateMemory = {
  /** Sealed; whoever has it open keeps the memory. */
  fd: number;
  /** Bytes of the pages that are not zero: what it costs. */
  usedBytes: number;
  /** Of the places and contents of these pages, hexadecimal. */
  sha256: string;
};

/** Reads the file into memory that no clone can write. Throws the system's error. */
export async function loadMemory(path: string, bytes: number): Promise<TemplateMemory> {
  const file = await open(path, 'r');
  const hash = createHash('sha256');
  let usedBytes = 0;
  try {
    const fd = await makeSealedMemory('sandbar-template', bytes, async (target) => {
      for await (const { page, offset } of usedRuns(file, bytes)) {
        hash.update(`${offset}:`).update(page);
        usedBytes += page.length;
        await writeAll(target, page, offset);
      }
    });
    return { fd, usedBytes, sha256: hash.digest('hex') };
  } finally {
    await file.close();
  }
}

/** Runs of pages that are not zero, each within one chunk; a run's buffer is only valid until the next one. */
async function* usedRuns(file: FileHandle, bytes: number): AsyncGenerator<{ page: Buffer; offset: number }> {
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (let data = nextData(file.fd, 0); data !== undefined && data < bytes; ) {
    const at = data - (data % CHUNK_BYTES);
    data = nextData(file.fd, at + CHUNK_BYTES);
    const { bytesRead } = await file.read(chunk, 0, Math.min(CHUNK_BYTES, bytes - at), at);
    if (isZero(chunk, 0, bytesRead)) continue;
    let from = 0;
    while (from < bytesRead) {
      if (isZero(chunk, from, from + PAGE_BYTES)) {
        from += PAGE_BYTES;
        continue;
      }
      let to = from + PAGE_BYTES;
      while (to < bytesRead && !isZero(chunk, to, to + PAGE_BYTES)) to += PAGE_BYTES;
      yield { page: chunk.subarray(from, to), offset: at + from };
      from = to;
    }
  }
}

function isZero(buffer: Buffer, from: number, to: number): boolean {
  return buffer.compare(ZERO, 0, to - from, from, to) === 0;
}

async function writeAll(fd: number, bytes: Buffer, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await write(fd, bytes, done, bytes.length - done, offset + done);
    done += bytesWritten;
  }
}
