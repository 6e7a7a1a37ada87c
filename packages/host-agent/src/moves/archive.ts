// The stream in which disks go from one host to another. It begins with a description (the head), then come the blocks
// of the files that are not holes, and at last a checksum of everything before it. A stream that breaks off, is
// reordered or is damaged on the way never has a valid end, so the receiver never takes a part for the whole.
//
//   frame:  file (4 bytes) | length (4 bytes) | offset (8 bytes) | content
//   stream: frame HEAD with JSON | frames of files, by their index in the head | frame END with the SHA-256
import { createHash } from 'node:crypto';
import { fstatSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { BLOCK_BYTES, isZero, nextData } from '../storage/sparse-file.ts';

const HEADER_BYTES = 16;
const HEAD = 0xffff_fffe;
const END = 0xffff_ffff;
const SUM_BYTES = 32;
/** The most bytes of a head. A machine with the output of a thousand jobs needs a fifth of it. */
const HEAD_BYTES_MAX = 4 * 1024 * 1024;

/** A file to send: its path, and how many bytes of it. */
export type SentFile = { path: string; bytes: number };
export type ReceivedBlock = { file: number; offset: number; bytes: Buffer };

/**
 * Yields the stream. `check` is called before the end is sent. When it throws, the stream has no end, because the files
 * were changed meanwhile.
 */
export async function* writeArchive(
  head: object,
  files: readonly SentFile[],
  signal: AbortSignal,
  check: () => void,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  const frame = (file: number, offset: number, content: Buffer): [Buffer, Buffer] => {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32BE(file, 0);
    header.writeUInt32BE(content.length, 4);
    header.writeBigUInt64BE(BigInt(offset), 8);
    hash.update(header);
    hash.update(content);
    return [header, content];
  };
  yield* frame(HEAD, 0, Buffer.from(JSON.stringify(head)));
  for (const [index, { path, bytes }] of files.entries()) {
    const file = await open(path, 'r');
    try {
      for await (const block of usedBlocks(file, bytes)) {
        signal.throwIfAborted();
        yield* frame(index, block.offset, block.bytes);
      }
      // A disk that was moved away meanwhile may have been written to at its new place.
      if (statSync(path).ino !== fstatSync(file.fd).ino) throw new Error(`${path} was replaced while it was sent`);
    } finally {
      await file.close();
    }
  }
  signal.throwIfAborted();
  check();
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(END, 0);
  header.writeUInt32BE(SUM_BYTES, 4);
  yield header;
  yield hash.update(header).digest();
}

/** Yields the blocks of a file that are not zero, in order. Each buffer is a new one. */
export async function* usedBlocks(file: FileHandle, size: number): AsyncGenerator<{ offset: number; bytes: Buffer }> {
  for (let at = 0; at < size; ) {
    const data = nextData(file.fd, at);
    if (data === undefined || data >= size) return;
    const offset = data - (data % BLOCK_BYTES);
    const bytes = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, size - offset));
    const { bytesRead } = await file.read(bytes, 0, bytes.length, offset);
    if (bytesRead < bytes.length) throw new Error(`the file ends at ${offset + bytesRead} bytes`);
    at = offset + BLOCK_BYTES;
    if (!isZero(bytes)) yield { offset, bytes };
  }
}

/** Reads such a stream. */
export class ArchiveReader {
  readonly head: unknown;
  readonly #bytes: ByteReader;
  readonly #hash: ReturnType<typeof createHash>;

  private constructor(head: unknown, bytes: ByteReader, hash: ReturnType<typeof createHash>) {
    this.head = head;
    this.#bytes = bytes;
    this.#hash = hash;
  }

  /** Reads the head. Throws `host_unavailable` when the stream breaks off or is damaged. */
  static async open(source: AsyncIterable<Buffer>): Promise<ArchiveReader> {
    const bytes = new ByteReader(source);
    const hash = createHash('sha256');
    const header = await bytes.take(HEADER_BYTES);
    const length = header.readUInt32BE(4);
    if (header.readUInt32BE(0) !== HEAD || length > HEAD_BYTES_MAX) throw damaged('it has no head');
    const content = await bytes.take(length);
    hash.update(header);
    hash.update(content);
    try {
      return new ArchiveReader(JSON.parse(content.toString()), bytes, hash);
    } catch {
      throw damaged('its head is not JSON');
    }
  }

  /**
   * Yields the blocks. Ends only after the checksum was found right; otherwise throws `host_unavailable`. So nothing
   * that was received may be used before the end.
   */
  async *blocks(): AsyncGenerator<ReceivedBlock> {
    for (;;) {
      const header = await this.#bytes.take(HEADER_BYTES);
      const [file, length] = [header.readUInt32BE(0), header.readUInt32BE(4)];
      if (length > BLOCK_BYTES) throw damaged(`a block of it has ${length} bytes`);
      const bytes = await this.#bytes.take(length);
      this.#hash.update(header);
      if (file === END) {
        if (!this.#hash.digest().equals(bytes)) throw damaged('its checksum is wrong');
        await this.#bytes.expectEnd();
        return;
      }
      this.#hash.update(bytes);
      yield { file, offset: Number(header.readBigUInt64BE(8)), bytes };
    }
  }
}

/** Returns the next bytes of a stream, in pieces of a wanted length. */
class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #pieces: Buffer[] = [];
  #length = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async take(length: number): Promise<Buffer> {
    while (this.#length < length) {
      const piece = await this.#next();
      if (piece === undefined) throw damaged('it broke off');
      this.#pieces.push(piece);
      this.#length += piece.length;
    }
    const all = this.#pieces.length === 1 ? (this.#pieces[0] as Buffer) : Buffer.concat(this.#pieces);
    const rest = all.subarray(length);
    this.#pieces = rest.length > 0 ? [rest] : [];
    this.#length = rest.length;
    return all.subarray(0, length);
  }

  /** Throws when more bytes follow. */
  async expectEnd(): Promise<void> {
    if (this.#length > 0 || (await this.#next()) !== undefined) throw damaged('it goes on after its end');
  }

  async #next(): Promise<Buffer | undefined> {
    try {
      const { value, done } = await this.#source.next();
      return done ? undefined : value;
    } catch (error) {
      throw damaged('its connection broke', error);
    }
  }
}

/** The copy can be sent again, so this is no refusal. */
function damaged(why: string, cause?: unknown): ServiceError {
  return new ServiceError('host_unavailable', `the copy that arrived cannot be used: ${why}`, { cause });
}
