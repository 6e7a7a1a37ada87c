// The rate buckets of attempts to guess a password. They belong to the client's IP address, to the e-mail address that
// the client tries, or to the session whose password is checked again.
import { createHash } from 'node:crypto';
import { clientOf } from '../http/address.ts';

/** The bucket of an IP address, or of a network of IPv6. */
export function addressKey(ip: string): string {
  return `sign-in-address:${clientOf(ip)}`;
}

/**
 * The bucket of one client's attempts with one e-mail address. Other clients have other buckets, so they cannot lock
 * the owner of the address out. The key is a hash, so the table contains no e-mail addresses.
 */
export function emailKey(email: string, ip: string): string {
  return `sign-in-email:${hash(`${email.toLowerCase()} ${addressKey(ip)}`)}`;
}

/** The bucket of an e-mail address that all browsers share that never signed in with it, whatever their IP address. */
export const unknownKey = (email: string): string => `sign-in-unknown:${hash(email.toLowerCase())}`;

/** The bucket of a browser that signed in before with the same e-mail address. */
export const deviceKey = (device: string): string => `sign-in-device:${hash(device)}`;

/** The bucket of a session whose password is checked again. */
export const sessionKey = (sessionId: string): string => `sign-in-session:${sessionId}`;

const hash = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The e-mail address in a body, if it has one. */
export function emailOf(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('email' in body)) return undefined;
  return typeof body.email === 'string' ? body.email : undefined;
}
