// Which header fields pass between a client and a machine. Everything else about a message, such as its length and its
// end, is read and written by node's own HTTP parser and writer on each side.
import { withoutDomain, withoutOurCookies } from './cookies.ts';
import { looksLikeCredential } from './token.ts';

/** Header fields as node gives them: name, value, name, value and so on, in their order and spelling. */
export type RawHeaders = readonly string[];

/** Fields that belong to one connection (RFC 9110, section 7.6.1), besides those that `Connection` names. */
const OF_CONNECTION = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Fields of a request that the relay sets itself, or that only the service may read. */
const REPLACED = new Set(['forwarded', 'host', 'x-real-ip', 'x-sandbar-key']);
const FORWARDED = 'x-forwarded-';

/**
 * Fields of a response that would reach beyond the port's own host name: Clear-Site-Data ends the cookies of the whole
 * site, which may be that of the dashboard, and Set-Cookie2 is an obsolete way to set cookies, whose Domain the relay
 * does not remove.
 */
const KEPT_BACK = new Set(['clear-site-data', 'set-cookie2']);

export type Forwarded = {
  /** The host name and port by which the client addressed the machine. */
  host: string;
  /** The address of the client. */
  clientIp: string;
  protocol: 'http' | 'https';
  /** Whether the header Authorization has authorised the request. Then it does not reach the machine. */
  dropsAuthorization: boolean;
};

/** Returns the fields of a request for the machine, without those that describe its body. */
export function toMachine(raw: RawHeaders, forwarded: Forwarded): string[] {
  const { host, clientIp, protocol, dropsAuthorization } = forwarded;
  const headers = ['Host', host];
  for (const [name, value, lower] of withoutConnection(raw)) {
    if (REPLACED.has(lower) || lower.startsWith(FORWARDED) || lower === 'content-length') continue;
    if (lower === 'authorization' && (dropsAuthorization || isOurs(value))) continue;
    const kept = lower === 'cookie' ? withoutOurCookies(value) : value;
    if (kept !== undefined) headers.push(name, kept);
  }
  headers.push('X-Forwarded-For', clientIp, 'X-Forwarded-Proto', protocol, 'X-Forwarded-Host', host);
  return headers;
}

/**
 * Returns the fields of a response for the client. `frameOrigins`: the origins whose pages may show the response in a
 * frame, besides the port's own. A second Content-Security-Policy only adds to that of the machine.
 */
export function toClient(raw: RawHeaders, frameOrigins: readonly string[]): string[] {
  const headers: string[] = [];
  for (const [name, value, lower] of withoutConnection(raw)) {
    if (KEPT_BACK.has(lower)) continue;
    const kept = lower === 'set-cookie' ? withoutDomain(value) : value;
    if (kept !== undefined) headers.push(name, kept);
  }
  headers.push('Content-Security-Policy', `frame-ancestors ${["'self'", ...frameOrigins].join(' ')}`);
  return headers;
}

/** Returns the trailers after a body, in pairs, without those fields that the relay replaces or removes in a head. */
export function trailersOf(raw: RawHeaders): [string, string][] {
  const pairs: [string, string][] = [];
  for (const [name, value, lower] of withoutConnection(raw)) {
    const isRefused = REPLACED.has(lower) || lower.startsWith(FORWARDED) || KEPT_BACK.has(lower);
    if (!isRefused && !NEVER_TRAILERS.has(lower)) pairs.push([name, value]);
  }
  return pairs;
}

/** Fields that change how a message is framed, routed or authorised, or set cookies (RFC 9110, section 6.5.1). */
const NEVER_TRAILERS = new Set(['authorization', 'content-length', 'cookie', 'set-cookie', 'content-security-policy']);

/** Whether an `Authorization` header has a credential of the service. */
function isOurs(authorization: string): boolean {
  return looksLikeCredential(bearerOf(authorization) ?? '');
}

/** Returns the credential of `Authorization: Bearer …`; undefined for another scheme. */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/** Returns name, value and name in lower case of each field that does not belong to the connection. */
function* withoutConnection(raw: RawHeaders): Generator<[string, string, string]> {
  const named = new Set<string>();
  for (let at = 0; at < raw.length; at += 2) {
    if (raw[at]?.toLowerCase() !== 'connection') continue;
    for (const name of raw[at + 1]?.split(',') ?? []) named.add(name.trim().toLowerCase());
  }
  for (let at = 0; at < raw.length; at += 2) {
    const [name = '', value = ''] = [raw[at], raw[at + 1]];
    const lower = name.toLowerCase();
    if (!OF_CONNECTION.has(lower) && !named.has(lower)) yield [name, value, lower];
  }
}
