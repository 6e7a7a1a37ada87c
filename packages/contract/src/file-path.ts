// Paths of files in a machine. Linux names files by bytes, which need not be UTF-8, so a path travels as percent-encoded
// text: in the query of a request, and to the guest agent. This file converts between bytes and that text. The SDK uses it
// in browsers, too, which have no Buffer.
import { ServiceError } from './errors.ts';

/** The limits of Linux, in bytes: PATH_MAX and NAME_MAX. */
export const PATH_BOUNDS = { pathBytes: 4096, nameBytes: 255 } as const;

const utf8 = new TextEncoder();
const SLASH = 0x2f;
const PERCENT = 0x25;
const UNRESERVED = /^[A-Za-z0-9\-._~/]$/;
/** The encoded text of each byte. Unreserved characters (RFC 3986) and `/` stand for themselves. */
const ENCODED = Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  return UNRESERVED.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
});

/** Percent-encodes a path. The text is ASCII, and equal paths have equal text. A string is taken as UTF-8. */
export function encodePath(path: string | Uint8Array): string {
  let text = '';
  for (const byte of typeof path === 'string' ? utf8.encode(path) : path) text += ENCODED[byte];
  return text;
}

/**
 * The bytes of a percent-encoded path. A character that is not encoded stands for its UTF-8 bytes. Throws
 * `validation_error` for a `%` without two hexadecimal digits.
 */
export function decodePath(text: string): Uint8Array {
  const bytes = utf8.encode(text);
  if (!bytes.includes(PERCENT)) return bytes;
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    let byte = bytes[at] ?? 0;
    if (byte === PERCENT) {
      const digits = String.fromCharCode(...bytes.subarray(at + 1, at + 3));
      if (!/^[0-9A-Fa-f]{2}$/.test(digits)) {
        throw new ServiceError('validation_error', 'A % in a path must be followed by two hexadecimal digits.');
      }
      byte = Number.parseInt(digits, 16);
      at += 2;
    }
    bytes[length++] = byte;
  }
  return bytes.subarray(0, length);
}

/** Throws `validation_error` unless the path is absolute, has no NUL byte and is within the limits of Linux. */
export function checkPath(path: Uint8Array, field = 'path'): void {
  const problem = problemOf(path);
  if (problem !== undefined) throw new ServiceError('validation_error', `${field} must ${problem}.`);
}

function problemOf(path: Uint8Array): string | undefined {
  if (path[0] !== SLASH) return 'be an absolute path';
  if (path.includes(0)) return 'hold no NUL byte';
  if (path.length > PATH_BOUNDS.pathBytes) return `have at most ${PATH_BOUNDS.pathBytes} bytes`;
  let nameBegins = 0;
  for (let at = 0; at <= path.length; at++) {
    if (at < path.length && path[at] !== SLASH) continue;
    if (at - nameBegins > PATH_BOUNDS.nameBytes) return `have at most ${PATH_BOUNDS.nameBytes} bytes in each name`;
    nameBegins = at + 1;
  }
  return undefined;
}
