// The rate buckets of a sign-in, which has no account yet: one for the client's IP address, one for the e-mail address
// it tries.
import { createHash } from 'node:crypto';
import { isIPv6 } from 'node:net';

/**
 * The bucket of an IP address. A client usually owns a whole /64 network of IPv6, so all of its addresses share one
 * bucket.
 */
export function addressKey(ip: string): string {
  return `sign-in-address:${isIPv6(ip) && !ip.includes('.') ? networkOf(ip) : ip}`;
}

/**
 * The bucket of an e-mail address and a client together: attempts of other clients must not lock the owner of the
 * address out. The key is a hash, so that the table holds no e-mail addresses.
 */
export function emailKey(email: string, ip: string): string {
  return `sign-in-email:${createHash('sha256')
    .update(`${email.toLowerCase()} ${addressKey(ip)}`)
    .digest('hex')}`;
}

/** The e-mail address in a body, if it has one. */
export function emailOf(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('email' in body)) return undefined;
  return typeof body.email === 'string' ? body.email : undefined;
}

/** The first four groups of an IPv6 address, with the zeros written out for which `::` stands. */
function networkOf(ip: string): string {
  const [before = '', after] = (ip.split('%')[0] ?? '').split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const gap = after === undefined ? [] : Array<string>(8 - head.length - tail.length).fill('0');
  return [...head, ...gap, ...tail].slice(0, 4).join(':');
}
