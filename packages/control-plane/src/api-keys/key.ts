// The shape of an API key: `sbr_` and 43 base62 characters, 256 random bits. Only its SHA-256 is ever stored.
import { createHash, randomBytes } from 'node:crypto';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 62^43 is a little more than 2^256. */
const LENGTH = 43;
/** The largest multiple of 62 in a byte: bytes from it on would favour the first characters. */
const UNBIASED = 248;
const SHAPE = /^sbr_[0-9A-Za-z]{43}$/;
export const PREFIX_LENGTH = 12;

/** A new random key. */
export function generateKey(): string {
  let key = '';
  while (key.length < LENGTH) {
    for (const byte of randomBytes(64)) {
      if (byte < UNBIASED && key.length < LENGTH) key += ALPHABET[byte % ALPHABET.length];
    }
  }
  return `sbr_${key}`;
}

/** Whether a string can be a key at all: what is not costs no query. */
export const looksLikeKey = (text: string): boolean => SHAPE.test(text);

/** What is stored of a key. A random 256-bit secret needs no slow hash. */
export const hashKey = (key: string): Buffer => createHash('sha256').update(key).digest();
