// The session cookie: `token.signature`, in the form that better-auth uses. A cookie with a wrong signature is refused
// without asking the database, and the database has only the SHA-256 of the token.
import { createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

export const SESSION_COOKIE = 'sandbar_session';
/**
 * The cookie that holds the state of a sign-in while the browser is at the OpenID provider. Encrypted, valid for ten
 * minutes.
 */
export const OIDC_COOKIE = 'sandbar_oidc';
/** How long a session lasts, seconds: a week from the sign-in, whether it is used or not. */
export const SESSION_SEC = 7 * 24 * 3600;

/**
 * The key that signs session cookies, derived from the secret of the service. This key does not reveal the secret or
 * any other derived key.
 */
export function sessionSecret(secret: string): string {
  return Buffer.from(hkdfSync('sha256', secret, '', 'sandbar dashboard session', 32)).toString('base64url');
}

/**
 * The hash of a session's token. The database stores the hash and not the token. The token has 190 random bits, so a
 * fast hash is enough.
 */
export const hashToken = (token: string): string => createHash('sha256').update(token).digest('base64url');

/** The token in a cookie header; undefined without a session cookie, or when its signature is wrong. */
export function readSessionCookie(header: string | undefined, secret: string): string | undefined {
  const value = cookieValue(header ?? '', SESSION_COOKIE);
  const dot = value?.lastIndexOf('.') ?? -1;
  if (value === undefined || dot <= 0) return undefined;
  const token = value.slice(0, dot);
  const [given, expected] = [Buffer.from(value.slice(dot + 1)), Buffer.from(sign(token, secret))];
  return given.length === expected.length && timingSafeEqual(given, expected) ? token : undefined;
}

/** Whether a cookie header has a session cookie, valid or not. */
export const hasSessionCookie = (header: string | undefined): boolean =>
  cookieValue(header ?? '', SESSION_COOKIE) !== undefined;

/** The `Set-Cookie` of a new session. */
export function writeSessionCookie(token: string, secret: string, isSecure: boolean): string {
  const value = encodeURIComponent(`${token}.${sign(token, secret)}`);
  return `${SESSION_COOKIE}=${value}; Max-Age=${SESSION_SEC}; ${attributes(isSecure)}`;
}

/** The `Set-Cookie` that makes a browser forget the session. */
export const clearSessionCookie = (isSecure: boolean): string =>
  `${SESSION_COOKIE}=; Max-Age=0; ${attributes(isSecure)}`;

const attributes = (isSecure: boolean): string => `Path=/; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;

const sign = (token: string, secret: string): string => createHmac('sha256', secret).update(token).digest('base64');

/** The value of a cookie in a cookie header; an empty string when the value is malformed. */
export function cookieValue(header: string, name: string): string | undefined {
  const pair = header.split(';').find((candidate) => candidate.trimStart().startsWith(`${name}=`));
  try {
    return pair && decodeURIComponent(pair.slice(pair.indexOf('=') + 1).trim());
  } catch {
    return '';
  }
}
