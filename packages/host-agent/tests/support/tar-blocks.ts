// Builds tar archives block by block, including archives that no tool would write, with fields that programs read
// differently.

/** Fields of one header. Strings are bytes as Latin-1; a number is written as octal digits. */
export type Block = {
  name?: string;
  type?: string;
  linkName?: string;
  mode?: string | number;
  size?: string | number;
  /** The eight bytes that name the format. The default is that of POSIX. */
  magic?: string;
  /** The bytes from 345 on: a POSIX prefix of the name, or fields of GNU. */
  prefix?: string;
  data?: string | Buffer;
};

export const GNU_MAGIC = 'ustar  \0';

/** Returns the header and its data, padded to whole blocks. */
export function block(fields: Block): Buffer {
  const { name = '', type = '0', linkName = '', mode = 0o644, magic = 'ustar\x0000', prefix = '' } = fields;
  const data = Buffer.isBuffer(fields.data) ? fields.data : Buffer.from(fields.data ?? '', 'latin1');
  const header = Buffer.alloc(512);
  const put = (value: string | number, at: number, length: number) =>
    header.write(typeof value === 'string' ? value : value.toString(8).padStart(length - 1, '0'), at, length, 'latin1');
  put(name, 0, 100);
  put(mode, 100, 8);
  put(0, 108, 8);
  put(0, 116, 8);
  put(fields.size ?? data.length, 124, 12);
  put(0, 136, 12);
  put(type, 156, 1);
  put(linkName, 157, 100);
  put(magic, 257, 8);
  put(prefix, 345, 155);
  sign(header);
  return Buffer.concat([header, data, Buffer.alloc(-data.length & 511)]);
}

/** Writes the checksum of a header into it. */
export function sign(header: Buffer): void {
  header.fill(' ', 148, 156);
  const sum = header.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0`, 148, 'latin1');
}

/** Returns an extended header of POSIX: type `x` for the next entry, `g` for all. */
export function pax(records: readonly (readonly [string, string])[], type = 'x'): Buffer {
  return block({ name: 'pax', type, data: Buffer.from(records.map(record).join(''), 'latin1') });
}

/** Returns GNU's header for the name (`L`) or the link target (`K`) of the next entry. */
export function gnuLong(type: 'L' | 'K', value: string): Buffer {
  return block({ name: '././@LongLink', type, magic: GNU_MAGIC, data: Buffer.from(`${value}\0`, 'latin1') });
}

export function archive(...parts: readonly Buffer[]): Buffer {
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

function record([key, value]: readonly [string, string]): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length++;
  return `${length}${rest}`;
}
