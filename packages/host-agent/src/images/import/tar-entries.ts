/**
 * Reads the entries of a tar stream and skips their contents. It is used only to check a layer before umoci unpacks it.
 * umoci must find the same entries, so everything that programs interpret differently is refused: names from two
 * extended headers, extended headers for all entries, bytes after the end. `tests/images.archives.test.ts` has such
 * archives.
 */
import { type ExtendedHeaders, noExtendedHeaders, readExtended } from './tar-extended.ts';
import { BLOCK, NO_DATA, parseHeader, type TarHeader } from './tar-header.ts';

/** An entry with the name, the link target and the size that its extended headers give it. */
export type TarEntry = TarHeader;

/** Largest extended header, in bytes. */
const EXTENDED_MAX = 1024 * 1024;
const CUT_SHORT = 'the archive ends in the middle of a file';

/** Yields the entries of a tar stream. Throws Error with a sentence when the stream is damaged or unusual. */
export async function* readTarEntries(chunks: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  const reader = new BlockReader(chunks);
  let extended = noExtendedHeaders();
  for (;;) {
    const block = await reader.read(BLOCK);
    if (block === undefined || block.every((byte) => byte === 0)) break;
    const header = parseHeader(block);
    if (header.type === 'x' || header.type === 'L' || header.type === 'K') {
      if (header.size > EXTENDED_MAX) throw new Error('an extended header is too long');
      const body = await reader.read(wholeBlocks(header.size));
      if (body === undefined && header.size > 0) throw new Error(CUT_SHORT);
      readExtended(extended, header.type, body?.toString('latin1', 0, header.size) ?? '');
      continue;
    }
    const entry = toEntry(header, extended);
    extended = noExtendedHeaders();
    yield entry;
    await reader.skip(wholeBlocks(entry.size));
  }
  if (extended.kinds !== '') throw new Error('the archive ends after an extended header');
  await reader.requireZeros();
}

function toEntry(header: TarHeader, { path, linkpath, size }: ExtendedHeaders): TarEntry {
  const name = path ?? header.name;
  const linkName = linkpath ?? header.linkName;
  if (header.type !== '0') {
    if (size !== undefined && size !== 0) throw new Error(NO_DATA);
    return { ...header, name, linkName };
  }
  // Some programs treat such an entry as a folder without data.
  if (name.endsWith('/')) throw new Error('a file has the name of a folder');
  return { ...header, name, linkName, size: size ?? header.size };
}

function wholeBlocks(bytes: number): number {
  return Math.ceil(bytes / BLOCK) * BLOCK;
}

/** Returns exact numbers of bytes from a stream of chunks of any length. */
class BlockReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterable<Buffer>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** Returns `length` bytes, or undefined at the end of the stream. Throws when the stream ends in between. */
  async read(length: number): Promise<Buffer | undefined> {
    while (this.#left.length < length) {
      const next = await this.#chunks.next();
      if (next.done) {
        if (this.#left.length === 0) return undefined;
        throw new Error(CUT_SHORT);
      }
      this.#left = this.#left.length === 0 ? next.value : Buffer.concat([this.#left, next.value]);
    }
    const block = this.#left.subarray(0, length);
    this.#left = this.#left.subarray(length);
    return block;
  }

  async skip(length: number): Promise<void> {
    let rest = length;
    while (rest > this.#left.length) {
      rest -= this.#left.length;
      this.#left = Buffer.alloc(0);
      const next = await this.#chunks.next();
      if (next.done) throw new Error(CUT_SHORT);
      this.#left = next.value;
    }
    this.#left = this.#left.subarray(rest);
  }

  /**
   * Reads to the end of the stream. Throws when it finds a byte that is not zero, because some programs would read a
   * second archive there.
   */
  async requireZeros(): Promise<void> {
    for (let chunk = this.#left; ; ) {
      if (chunk.some((byte) => byte !== 0)) throw new Error('something follows the end of the archive');
      const next = await this.#chunks.next();
      if (next.done) return;
      chunk = next.value;
    }
  }
}
