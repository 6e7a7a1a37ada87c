// The two codes of a device login. The device code is the program's secret: `sbd_` and 32 random bytes in base64url.
// The user code is short, because a person types it: eight of 20 letters, which are 34 bits.
import { createHash, createHmac, hkdfSync, randomBytes, randomInt } from 'node:crypto';

/** Consonants without Y, so that no words appear and no two characters look alike (RFC 8628, section 6.1). */
const LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
const LENGTH = 8;

/** A new random device code. */
export const generateDeviceCode = (): string => `sbd_${randomBytes(32).toString('base64url')}`;

/** The hash that the database stores in place of a device code. A fast hash is enough for 256 random bits. */
export const hashDeviceCode = (code: string): Buffer => createHash('sha256').update(code).digest();

/** A new random user code, such as WDJB-MJHT. */
export const generateUserCode = (): string =>
  formatUserCode(Array.from({ length: LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join(''));

/** A user code in the form in which the program shows it, from any way in which a person can type it. */
export function formatUserCode(typed: string): string {
  const letters = typed.replace(/[- ]/g, '').toUpperCase();
  return `${letters.slice(0, LENGTH / 2)}-${letters.slice(LENGTH / 2)}`;
}

/**
 * The hash that the database stores in place of a user code. There are few enough user codes to compute the hash of
 * each, so the hash needs a key: one that is derived from the secret of the service.
 */
export function hashUserCode(typed: string, secret: string): Buffer {
  const key = Buffer.from(hkdfSync('sha256', secret, '', 'sandbar user code', 32));
  return createHmac('sha256', key).update(formatUserCode(typed)).digest();
}
