// Computes the SHA-256 of files that never change again, such as layers and images, and remembers it while the agent
// runs.
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { BLOCK_BYTES, nextData } from '../storage/sparse-file.ts';

const ZERO = Buffer.alloc(BLOCK_BYTES);
/** How many digests are remembered. */
const REMEMBERED = 10_000;

export class FileDigests {
  readonly #known = new Map<string, Promise<string>>();

  /** Returns the SHA-256 of a file and its size. Throws when the file cannot be read. */
  async of(path: string): Promise<{ sha256: string; bytes: number }> {
    const { size, mtimeMs, ino } = statSync(path);
    const key = `${path}\0${ino}\0${size}\0${mtimeMs}`;
    const known = this.#known.get(key) ?? this.#begin(key, path, size);
    return { sha256: await known, bytes: size };
  }

  #begin(key: string, path: string, size: number): Promise<string> {
    if (this.#known.size >= REMEMBERED) this.#known.clear();
    const digest = digestOf(path, size);
    this.#known.set(key, digest);
    digest.catch(() => this.#known.delete(key));
    return digest;
  }
}

/** Reads the file block by block. A hole is not read, because its zeros are known. */
async function digestOf(path: string, size: number): Promise<string> {
  const hash = createHash('sha256');
  const file = await open(path, 'r');
  try {
    const buffer = Buffer.allocUnsafe(BLOCK_BYTES);
    for (let offset = 0; offset < size; offset += BLOCK_BYTES) {
      const length = Math.min(BLOCK_BYTES, size - offset);
      const data = nextData(file.fd, offset);
      if (data === undefined || data >= offset + length) {
        hash.update(ZERO.subarray(0, length));
        // Other work of the agent gets its turn between blocks.
        await new Promise(setImmediate);
        continue;
      }
      const { bytesRead } = await file.read(buffer, 0, length, offset);
      if (bytesRead < length) throw new Error(`the file ends at ${offset + bytesRead} bytes`);
      hash.update(buffer.subarray(0, length));
    }
  } finally {
    await file.close();
  }
  return hash.digest('hex');
}
