// Decides whether a request may reach a port of a machine. A public port is open to everybody. A private one needs, in
// this order: an API key, a session or a token in X-Sandbar-Key, or in Authorization: Bearer; a token in the query; a
// token in the port's cookie. A machine that does not exist looks like one with private ports.
import type { IncomingMessage } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { accountIsSuspended } from '../accounts/suspended.ts';
import { looksLikeKey } from '../api-keys/key.ts';
import { findCaller, findValidKeys } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { readSessionCookie, SESSION_COOKIE } from '../auth/cookie.ts';
import type { Watchable } from '../auth/credential-watch.ts';
import { findSessionCaller } from '../auth/store.ts';
import { noteUse } from '../http/auth.ts';
import type { Caller } from '../http/route-config.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { portCookies } from './cookies.ts';
import { bearerOf } from './headers.ts';
import { type FoundPort, findPort } from './store.ts';
import { looksLikeCredential, type PortTokenContent, readPortToken } from './token.ts';

/** The secrets that credentials are signed with, derived once. */
export type Secrets = { session: string; token: Buffer };

/** Permission to use a port. While a relay is open, the service checks whether `credential` is still valid. */
export type Permission = {
  found: FoundPort;
  /**
   * The key or session that gave the permission. For a token, it is the API key that made the token. When the port is
   * public, or a session made the token, it is the account of the machine.
   */
  credential: Watchable;
  /** Whether the request can only read: a GET or HEAD without the header Upgrade. */
  isRead: boolean;
  /** When the token expires, in milliseconds since 1970. Undefined when no token gave the permission. */
  expiresAt: number | undefined;
  /** Whether the credential came in the Authorization header. */
  dropsAuthorization: boolean;
};

export type PortRequest = {
  request: IncomingMessage;
  machineId: string;
  port: number;
  /** The token in the query. */
  queryToken: string | undefined;
};

/**
 * Returns the permission for a request. Throws `unauthenticated`, `forbidden`, and `not_found` for a machine of another
 * account. If the account of the machine is suspended, only GET and HEAD are allowed, to everybody.
 */
export async function authorise(app: App, secrets: Secrets, asked: PortRequest): Promise<Permission> {
  const permission = await findPermission(app, secrets, asked);
  if (permission.found.isSuspended && !permission.isRead) throw accountIsSuspended();
  return permission;
}

async function findPermission(app: App, secrets: Secrets, asked: PortRequest): Promise<Permission> {
  const { headers } = asked.request;
  const given = givenCredential(headers, secrets);
  const token = readToken(secrets, asked, given?.value);
  const isCaller = given !== undefined && !isPortToken(given.value);
  // The queries do not depend on each other, so they go to the database together.
  const [found, caller, hasKey] = await Promise.all([
    findPort(app.db, asked.machineId, asked.port),
    isCaller ? findCallerOf(app, secrets, given.value) : undefined,
    token?.keyId === undefined ? true : isValidKey(app, token.keyId),
  ]);
  const isRead = isReading(asked.request);
  const about = { isRead, expiresAt: undefined, dropsAuthorization: given?.isAuthorization === true };
  if (found?.isPublic) return { ...about, found, credential: accountOf(found) };
  if (caller) {
    if (found?.target.accountId !== caller.accountId) throw machineNotFound();
    if (caller.scope !== 'full' && !isRead) {
      throw new ServiceError('forbidden', 'This key has scope read; it reaches a port with GET and HEAD only.');
    }
    return { ...about, found, credential: caller };
  }
  if (!token || !hasKey || found?.target.accountId !== token.accountId)
    throw unauthenticated(asked, given !== undefined);
  const { keyId, expiresAt } = token;
  const credential = keyId === undefined ? accountOf(found) : ({ via: 'key', credentialId: keyId } as const);
  return { ...about, found, credential, expiresAt };
}

const isReading = ({ method, headers: { upgrade } }: IncomingMessage): boolean =>
  (method === 'GET' || method === 'HEAD') && upgrade === undefined;

const accountOf = ({ target }: FoundPort): Watchable => ({ via: 'account', credentialId: target.accountId });

type Given = { value: string; isAuthorization: boolean };

/**
 * Returns the credential in the headers. Ignores an Authorization header without a credential of the service: it is for
 * the program in the machine.
 */
function givenCredential(headers: IncomingMessage['headers'], secrets: Secrets): Given | undefined {
  const own = headers['x-sandbar-key'];
  if (typeof own === 'string') return { value: own, isAuthorization: false };
  const bearer = bearerOf(headers.authorization);
  if (bearer === undefined) return undefined;
  const isOurs = looksLikeCredential(bearer) || sessionToken(bearer, secrets) !== undefined;
  return isOurs ? { value: bearer, isAuthorization: true } : undefined;
}

const isPortToken = (value: string): boolean => looksLikeCredential(value) && !looksLikeKey(value);

/** The token of a session whose cookie has this value; undefined when its signature is wrong. */
const sessionToken = (value: string, secrets: Secrets): string | undefined =>
  value.includes(';') ? undefined : readSessionCookie(`${SESSION_COOKIE}=${value}`, secrets.session);

/** Throws `unauthenticated` for an unknown, expired or revoked credential. */
async function findCallerOf(app: App, secrets: Secrets, value: string): Promise<Caller> {
  if (looksLikeKey(value)) {
    const caller = await findCaller(app.db, value);
    if (caller) {
      noteUse(app, caller);
      return caller;
    }
  } else {
    const token = sessionToken(value, secrets);
    const caller = token === undefined ? undefined : await findSessionCaller(app.db, token);
    if (caller) return caller;
  }
  throw new ServiceError('unauthenticated', 'The credential is malformed, unknown, expired or revoked.');
}

/** Returns the content of the token for the port: from the headers, else from the query, else from the cookie. */
function readToken(
  secrets: Secrets,
  { request, machineId, port, queryToken }: PortRequest,
  given: string | undefined,
): PortTokenContent | undefined {
  const inHeaders = given ?? queryToken;
  const texts = inHeaders === undefined ? portCookies(request.headers.cookie) : [inHeaders];
  const now = Date.now();
  return texts
    .map((text) => readPortToken(text, secrets.token, now))
    .find((content) => content?.machineId === machineId && content.port === port);
}

const isValidKey = async (app: App, keyId: string): Promise<boolean> =>
  (await findValidKeys(app.db, [keyId])).length > 0;

function unauthenticated({ port, queryToken }: PortRequest, wasGiven: boolean): ServiceError {
  return new ServiceError(
    'unauthenticated',
    wasGiven || queryToken !== undefined
      ? `The token is not valid for port ${port} of this machine, or has expired. Get a new link.`
      : `Port ${port} of this machine is private. Open it with a link from sandbar ports MACHINE ${port} --url, or send an API key in X-Sandbar-Key.`,
  );
}
