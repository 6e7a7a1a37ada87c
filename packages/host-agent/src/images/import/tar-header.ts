/**
 * Parses one header of a tar archive. Programs disagree about damaged and unusual headers, and it is another program
 * that unpacks the layer. So this parser accepts only headers that all programs read alike: headers of POSIX and of GNU
 * tar with nothing in the fields that only some programs know.
 */

export const BLOCK = 512;

export const NO_DATA = 'an entry that has no data claims a size';

export interface TarHeader {
  /** The name's bytes as Latin-1, so that every name survives unchanged. */
  name: string;
  /** One character; `0` for a regular file. */
  type: string;
  linkName: string;
  /** Size in bytes of the data that follows the header. */
  size: number;
}

/** The types of entries without data: hard link, symlink, character device, block device, folder, pipe. */
const WITHOUT_DATA = '123456';
/**
 * The types of entries that describe the next entry: extended header of POSIX, long name and long link target of GNU.
 */
const EXTENDED = 'xLK';

/**
 * The end of a GNU header: times of access and change, which few programs write, then only zeros to the end of the
 * block. POSIX has a part of the name here, and some programs read it even in a GNU header.
 */
const REST_OF_GNU = /^([0-7]{11}[ \0]|\0{12}){2}\0{143}$/;

/** Parses a block of 512 bytes. Throws Error with a sentence when it is not a header or is an unusual header. */
export function parseHeader(block: Buffer): TarHeader {
  if (numberAt(block, 148, 8) !== checksumOf(block)) throw new Error('it is not a tar archive');
  const type = typeOf(block);
  const name = nameOf(block);
  const size = numberAt(block, 124, 12);
  if (size === undefined) throw new Error('an entry has an impossible size');
  if (WITHOUT_DATA.includes(type) && size !== 0) throw new Error(NO_DATA);
  return { name, type, linkName: textAt(block, 157, 100), size };
}

function typeOf(block: Buffer): string {
  const letter = block.toString('latin1', 156, 157);
  const type = letter === '\0' ? '0' : letter;
  if (`0${WITHOUT_DATA}${EXTENDED}`.includes(type)) return type;
  if (type === 'S') throw new Error('it holds a sparse file, whose size nobody can trust');
  throw new Error(`an entry has the unusual type ${JSON.stringify(letter)}`);
}

function nameOf(block: Buffer): string {
  const name = textAt(block, 0, 100);
  const magic = block.toString('latin1', 257, 265);
  if (magic === 'ustar\x0000') {
    // The header of the program `star` is a POSIX header with a shorter prefix and a mark at its end, so refuse it.
    if (block.subarray(500).some((byte) => byte !== 0)) throw new Error('an entry has an unusual header');
    const prefix = textAt(block, 345, 155);
    return prefix === '' ? name : `${prefix}/${name}`;
  }
  if (magic !== 'ustar  \0') throw new Error('an entry has neither a header of POSIX nor one of GNU');
  if (!REST_OF_GNU.test(block.toString('latin1', 345))) throw new Error('an entry has an unusual header of GNU');
  return name;
}

/**
 * Reads a number: octal digits, or binary with the highest bit set, which GNU tar uses for large numbers. Returns
 * undefined when it is not valid. Null bytes before the digits are not valid, because only some programs skip them.
 */
function numberAt(block: Buffer, offset: number, length: number): number | undefined {
  const field = block.subarray(offset, offset + length);
  if (field[0] === 0x80) {
    const value = field.subarray(1).reduce((high, byte) => high * 256 + byte, 0);
    return Number.isSafeInteger(value) ? value : undefined;
  }
  const digits = /^ *([0-7]*)[ \0]*$/.exec(field.toString('latin1'))?.[1];
  if (digits === undefined) return undefined;
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

function checksumOf(block: Buffer): number {
  return block.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 0x20 : byte), 0);
}

function textAt(block: Buffer, offset: number, length: number): string {
  return untilNull(block.toString('latin1', offset, offset + length));
}

function untilNull(text: string): string {
  const end = text.indexOf('\0');
  return end < 0 ? text : text.slice(0, end);
}
