// Copies a template's memory file into sealed memory and computes its checksum on the way. Most of the file is holes,
// which are neither copied nor hashed.
import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { makeSealedMemory } from '../hypervisor/sealed-memory.ts';
import { BLOCK_BYTES, isZero, nextData, PAGE_BYTES, writeAll } from '../storage/sparse-file.ts';

export type TemplateMemory = {
  /** Descriptor of the sealed memory, which exists as long as any process has it open. */
  fd: number;
  /** Bytes in pages that are not zero, which is the host memory used. */
  usedBytes: number;
  /** SHA-256 of the positions and contents of these pages, as hex digits. */
  sha256: string;
};

/**
 * Reads `bytes` bytes of the file into sealed memory, which no clone can change. The caller closes `fd`. Throws system
 * errors.
 */
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

/**
 * Yields runs of pages that are not zero, each within one block. The buffer of a run is only valid until the next run.
 */
async function* usedRuns(file: FileHandle, bytes: number): AsyncGenerator<{ page: Buffer; offset: number }> {
  const block = Buffer.alloc(BLOCK_BYTES);
  for (let data = nextData(file.fd, 0); data !== undefined && data < bytes; ) {
    const at = data - (data % BLOCK_BYTES);
    data = nextData(file.fd, at + BLOCK_BYTES);
    const { bytesRead } = await file.read(block, 0, Math.min(BLOCK_BYTES, bytes - at), at);
    if (isZero(block, 0, bytesRead)) continue;
    let from = 0;
    while (from < bytesRead) {
      if (isZero(block, from, from + PAGE_BYTES)) {
        from += PAGE_BYTES;
        continue;
      }
      let to = from + PAGE_BYTES;
      while (to < bytesRead && !isZero(block, to, to + PAGE_BYTES)) to += PAGE_BYTES;
      yield { page: block.subarray(from, to), offset: at + from };
      from = to;
    }
  }
}
