// Cuts bytes between UTF-8 characters, so that no part has half a character when a text is read in parts.

/** The most bytes of a UTF-8 character. */
const LONGEST = 4;

/**
 * The number of bytes at the start that belong to a character which began before these bytes. There can be at most 3
 * such continuation bytes. If there are more, the bytes are not text, and the result is 0.
 */
export function continuationBytes(bytes: Uint8Array): number {
  let count = 0;
  while (count < LONGEST && isContinuation(bytes[count])) count++;
  return count < LONGEST ? count : 0;
}

/** The number of bytes up to the end of the last complete character. If the end is not UTF-8, all bytes count. */
export function completeLength(bytes: Uint8Array): number {
  for (let back = 1; back < LONGEST && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back];
    if (isContinuation(byte)) continue;
    return back < lengthOf(byte ?? 0) ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** The text of UTF-8 bytes. Undefined when they are not UTF-8, or contain a NUL byte as binary files do. */
export function asText(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** The length of the character that begins with this byte. 1 if no character can begin with it. */
function lengthOf(byte: number): number {
  if (byte >= 0xf0 && byte < 0xf8) return 4;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xc0 && byte < 0xe0 ? 2 : 1;
}
