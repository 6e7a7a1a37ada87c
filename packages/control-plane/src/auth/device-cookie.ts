// The device cookie: a browser gets it when a user signs in, and keeps it after the sign-out. It is no credential. It
// only shows that this browser signed in with this e-mail address before, so its attempts are counted separately from
// those of strangers. Otherwise strangers could use up all attempts and lock the owner of the address out (OWASP calls
// this "device cookies").
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { cookieValue } from './cookie.ts';

export const DEVICE_COOKIE = 'sandbar_device';
const LIFETIME_SEC = 365 * 24 * 3600;

/** The key that signs device cookies, derived from the secret of the service. */
function deviceSecret(secret: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', 'sandbar device cookie', 32));
}

/** The `Set-Cookie` for a browser that signed in. */
export function writeDeviceCookie(email: string, secret: string, isSecure: boolean): string {
  const device = randomBytes(16).toString('base64url');
  const value = `${device}.${sign(device, email, secret)}`;
  return `${DEVICE_COOKIE}=${value}; Max-Age=${LIFETIME_SEC}; Path=/v1/auth; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;
}

/** The device's random name in a cookie header; undefined without a device cookie that is valid for this address. */
export function readDeviceCookie(header: string | undefined, email: string, secret: string): string | undefined {
  const [device = '', signature = ''] = (cookieValue(header ?? '', DEVICE_COOKIE) ?? '').split('.');
  const [given, expected] = [Buffer.from(signature), Buffer.from(sign(device, email, secret))];
  return given.length === expected.length && timingSafeEqual(given, expected) ? device : undefined;
}

const sign = (device: string, email: string, secret: string): string =>
  createHmac('sha256', deviceSecret(secret)).update(`${device} ${email.toLowerCase()}`).digest('base64url');
