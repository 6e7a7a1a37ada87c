/**
 * Reads the headers of a tar stream and skips the contents. It serves only to check a layer before umoci unpacks it.
 * Anything unusual is refused, so the two programs cannot interpret a layer differently to an attacker's advantage.
 */

export interface TarEntry {
  /** The name's bytes as Latin-1, so that every name survives unchanged. */
  name: string;
  /** One character, as in the header; `0` for a regular file. */
  type: string;
  linkName: string;
  /** Size in bytes of the data that follows the header. */
  size: number;
  isSparse: boolean;
}

const BLOCK = 512;
/** Largest extended header, in bytes. */
const EXTENDED_MAX = 1024 * 1024;
/**
 * Types without data, whatever their size field says: hard link, symlink, character device, block device, folder, pipe.
 */
const WITHOUT_DATA = new Set(['1', '2', '3', '4', '5', '6']);

/**
 * Yields the entries of a tar stream. Throws Error with a sentence when the stream is not a tar archive or is cut
 * short.
 */
export async function* readTarEntries(chunks: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  const reader = new BlockReader(chunks);
  let extended: Record<string, string> = {};
  for (;;) {
    const header = await reader.read(BLOCK);
    if (header === undefined || header.every((byte) => byte === 0)) break;
    checkSum(header);
    const type = text(header, 156, 1) || '0';
    const size = numberAt(header, 124, 12);
    if (type === 'x' || type === 'g' || type === 'L' || type === 'K') {
      const body = await readExtended(reader, size);
      // Global headers are ignored otherwise, because no unpacker here applies them.
      if (type === 'g' && /GNU\.sparse/.test(body)) extended['GNU.sparse'] = '1';
      if (type === 'x') extended = { ...extended, ...parseRecords(body) };
      if (type === 'L') extended = { ...extended, path: untilNull(body) };
      if (type === 'K') extended = { ...extended, linkpath: untilNull(body) };
      continue;
    }
    const entry = toEntry(header, type, size, extended);
    extended = {};
    yield entry;
    await reader.skip(Math.ceil(entry.size / BLOCK) * BLOCK);
  }
  // Bytes after the archive's end belong to no entry, but the digest covers them, so they must be read.
  await reader.drain();
}

function toEntry(header: Buffer, type: string, size: number, extended: Record<string, string>): TarEntry {
  const isUstar = text(header, 257, 6) === 'ustar';
  const prefix = isUstar ? text(header, 345, 155) : '';
  const plain = text(header, 0, 100);
  const said = extended.size === undefined ? size : Number(extended.size);
  if (!Number.isSafeInteger(said) || said < 0) throw new Error('a file has an impossible size');
  return {
    name: extended.path ?? (prefix === '' ? plain : `${prefix}/${plain}`),
    type,
    linkName: extended.linkpath ?? text(header, 157, 100),
    size: WITHOUT_DATA.has(type) ? 0 : said,
    isSparse: type === 'S' || Object.keys(extended).some((key) => key.startsWith('GNU.sparse')),
  };
}

async function readExtended(reader: BlockReader, size: number): Promise<string> {
  if (size > EXTENDED_MAX) throw new Error('an extended header is too long');
  const body = await reader.read(Math.ceil(size / BLOCK) * BLOCK);
  if (body === undefined && size > 0) throw new Error('the archive ends in the middle of a file');
  return (body ?? Buffer.alloc(0)).toString('latin1', 0, size);
}

/** Parses lines of `<length> <key>=<value>\n`. The length is that of the whole line. */
function parseRecords(body: string): Record<string, string> {
  const records: Record<string, string> = {};
  for (let at = 0; at < body.length; ) {
    const match = /^(\d{1,7}) /.exec(body.slice(at, at + 9));
    const length = Number(match?.[1]);
    const line = body.slice(at, at + length);
    const equals = line.indexOf('=');
    if (match === null || equals < 0 || !line.endsWith('\n')) throw new Error('an extended header is damaged');
    const key = line.slice(match[0].length, equals);
    const value = line.slice(equals + 1, -1);
    if (/^(path|linkpath)$/.test(key) && value.includes('\0')) throw new Error('a file name holds a null byte');
    records[key] = value;
    at += length;
  }
  return records;
}

function checkSum(header: Buffer): void {
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 0x20 : (header[at] ?? 0);
  if (numberAt(header, 148, 8) !== sum) throw new Error('it is not a tar archive');
}

/**
 * Reads a number from a header: octal digits, or binary with the highest bit set, which GNU tar uses for large numbers.
 */
function numberAt(header: Buffer, offset: number, length: number): number {
  const field = header.subarray(offset, offset + length);
  const first = field[0] ?? 0;
  if (first & 0x80) {
    let value = first & 0x7f;
    for (const byte of field.subarray(1)) value = value * 256 + byte;
    if (first & 0x40 || !Number.isSafeInteger(value)) throw new Error('a file has an impossible size');
    return value;
  }
  const digits = untilNull(field.toString('latin1')).trim();
  if (!/^[0-7]*$/.test(digits)) throw new Error('it is not a tar archive');
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

function text(header: Buffer, offset: number, length: number): string {
  return untilNull(header.toString('latin1', offset, offset + length));
}

function untilNull(value: string): string {
  const end = value.indexOf('\0');
  return end < 0 ? value : value.slice(0, end);
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
        throw new Error('the archive ends in the middle of a file');
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
      if (next.done) throw new Error('the archive ends in the middle of a file');
      this.#left = next.value;
    }
    this.#left = this.#left.subarray(rest);
  }

  async drain(): Promise<void> {
    this.#left = Buffer.alloc(0);
    while (!(await this.#chunks.next()).done);
  }
}
