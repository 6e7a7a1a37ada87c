// Cookies between browsers and machines. None of the service's cookies reaches a machine, and a machine sets cookies
// for its own host name only.

/**
 * Holds a token of the port, see token.ts. Has no Domain, so the browser sends it to the host name of this port only.
 */
export const PORT_COOKIE = 'sandbar_port';
/** All cookies of the service begin with this (auth/cookie.ts, auth/device-cookie.ts). */
const OUR_PREFIX = 'sandbar_';

/** Returns a `Cookie` header without the service's cookies; undefined when no cookie is left. */
export function withoutOurCookies(header: string): string | undefined {
  const theirs = header.split(';').filter((pair) => !nameOf(pair).startsWith(OUR_PREFIX));
  const text = theirs.join(';').trim();
  return text === '' ? undefined : text;
}

/**
 * Returns the values of all cookies with the port's cookie name. There may be several: a script on a page of another
 * machine can set a cookie with this name for a shared parent domain. That cookie must not hide the real token, so all
 * values are tried.
 */
export function portCookies(header: string | undefined): string[] {
  const pairs = (header ?? '').split(';').filter((pair) => nameOf(pair) === PORT_COOKIE);
  return pairs.map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
}

/** The `Set-Cookie` that keeps a token until it expires. `now` and `expiresAt`: milliseconds since 1970. */
export function writePortCookie(token: string, expiresAt: number, now: number, isSecure: boolean): string {
  const maxAge = Math.floor((expiresAt - now) / 1000);
  return `${PORT_COOKIE}=${token}; Max-Age=${maxAge}; Path=/; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;
}

/**
 * Returns a `Set-Cookie` of a machine without its Domain, so that it counts for the port's own host name. Undefined for
 * a cookie with a name of the service.
 */
export function withoutDomain(setCookie: string): string | undefined {
  const [pair = '', ...attributes] = setCookie.split(';');
  if (nameOf(pair).startsWith(OUR_PREFIX)) return undefined;
  return [pair, ...attributes.filter((attribute) => nameOf(attribute).toLowerCase() !== 'domain')].join(';');
}

const nameOf = (pair: string): string => (pair.split('=')[0] ?? '').trim();
