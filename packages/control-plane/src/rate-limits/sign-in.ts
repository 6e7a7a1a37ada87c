// The buckets of who has no account yet: one for where the request comes from, one for the e-mail address that it tries.
import { createHash } from 'node:crypto';
import { isIPv6 } from 'node:net';

/** The bucket of a client's address. A site owns a whole /64 of IPv6, so all of it is one client. */
export function addressKey(ip: string): string {
  return `sign-in-address:${isIPv6(ip) && !ip.includes('.') ? networkOf(ip) : ip}`;
}

/**
 * The bucket of an e-mail address as one client tries it: another's attempts must not lock its owner out. Hashed: the
 * table needs none in clear text.
 */
export function emailKey(email: string, ip: string): string {
  return `sign-in-email:${createHash('sha256')
    .update(`${email.toLowerCase()} ${addressKey(ip)}`)
    .digest('hex')}`;
}

/** The e-mail address that a body names, if any. */
export function emailOf(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('email' in body)) return undefined;
  return typeof body.email === 'string' ? body.email : undefined;
}

/** The first four groups of an IPv6 address, of which `::` may stand for some. */
function networkOf(ip: string): string {
  const [before = '', after] = (ip.split('%')[0] ?? '').split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const gap = after === undefined ? [] : Array<string>(8 - head.length - tail.length).fill('0');
  return [...head, ...gap, ...tail].slice(0, 4).join(':');
}
