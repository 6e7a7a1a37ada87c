// The session cookie: `token.signature`, as better-auth writes it. The signature keeps guesses away from the database;
// the database knows the SHA-256 of the token only.
import { createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

export const SESSION_COOKIE = 'sandbar_session';
/** Carries a sign-in through the OpenID provider and back; sealed, ten minutes. */
export const OIDC_COOKIE = 'sandbar_oidc';
/** Life of a session, seconds: a week from the sign-in, used or not. */
export const SESSION_SEC = 7 * 24 * 3600;

/** The secret of sessions, made of the service's; knowing the one says nothing of its other uses. */
export function sessionSecret(secret: string): string {
  return Buffer.from(hkdfSync('sha256', secret, '', 'sandbar dashboard session', 32)).toString('base64url');
}

/** What is stored of a session's token. A random 190-bit secret needs no slow hash. */
export const hashToken = (token: string): string => createHash('sha256').update(token).digest('base64url');

/** The token of a cookie header, or undefined when there is none, or one that we did not sign. */
export function readSessionCookie(header: string | undefined, secret: string): string | undefined {
  const value = cookieValue(header ?? '', SESSION_COOKIE);
  const dot = value?.lastIndexOf('.') ?? -1;
  if (value === undefined || dot <= 0) return undefined;
  const token = value.slice(0, dot);
  const [given, expected] = [Buffer.from(value.slice(dot + 1)), Buffer.from(sign(token, secret))];
  return given.length === expected.length && timingSafeEqual(given, expected) ? token : undefined;
}

/** Whether a request has the cookie at all. */
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

function cookieValue(header: string, name: string): string | undefined {
  const pair = header.split(';').find((candidate) => candidate.trimStart().startsWith(`${name}=`));
  try {
    return pair && decodeURIComponent(pair.slice(pair.indexOf('=') + 1).trim());
  } catch {
    return '';
  }
}
