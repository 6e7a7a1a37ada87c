// The form of an API key: `sbr_` and 43 base62 characters, which are 256 random bits. Only its SHA-256 is stored.
import { createHash, randomBytes } from 'node:crypto';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 62^43 is a little more than 2^256. */
const LENGTH = 43;
/**
 * The largest multiple of 62 that fits into a byte. Random bytes from here on are dropped, because with them the first
 * characters of the alphabet would be more frequent.
 */
const UNBIASED = 248;
const SHAPE = /^sbr_[0-9A-Za-z]{43}$/;
export const PREFIX_LENGTH = 12;

/** A new random key. */
export const generateKey = (): string => `sbr_${randomText()}`;

/** 256 random bits as 43 base62 characters. */
export function randomText(): string {
  let text = '';
  while (text.length < LENGTH) {
    for (const byte of randomBytes(64)) {
      if (byte < UNBIASED && text.length < LENGTH) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}

/** Whether a string has the form of a key. A string of another form is refused without a query. */
export const looksLikeKey = (text: string): boolean => SHAPE.test(text);

/** The hash that the database stores in place of a key. A fast hash is enough, because a key has 256 random bits. */
export const hashKey = (key: string): Buffer => createHash('sha256').update(key).digest();
