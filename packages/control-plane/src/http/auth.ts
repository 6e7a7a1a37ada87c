// Authentication and authorisation. They come first: nothing reads a request's query or body before them.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify';
import { accountIsSuspended } from '../accounts/suspended.ts';
import { looksLikeKey } from '../api-keys/key.ts';
import { KeyLookups } from '../api-keys/lookups.ts';
import { type KeyCaller, touchKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { hasSessionCookie, readSessionCookie, sessionSecret } from '../auth/cookie.ts';
import { requireOwnOrigin } from '../auth/origin.ts';
import { hasPassword } from '../auth/password.ts';
import { findSessionCaller } from '../auth/store.ts';
import type { Access, Caller } from './route-config.ts';

/**
 * Adds the check of credentials. Also makes the start of the service fail if a route does not declare who may use it.
 * Call it before the first route.
 */
export function installAuth(server: FastifyInstance, app: App): void {
  const secret = sessionSecret(app.config.secret);
  const keys = new KeyLookups(app.db);
  server.decorateRequest('caller', null);
  server.addHook('onRoute', (route: RouteOptions) => {
    if (!route.config?.access) throw new Error(`${String(route.method)} ${route.url} does not declare config.access.`);
  });
  server.addHook('onRequest', async (request) => {
    const { access, allowedWhenSuspended } = request.routeOptions.config;
    // An unknown path has no route and so no access declaration. It is answered with 404, without a credential.
    if (access === undefined || access === 'public') return;
    const caller = await authenticate(app, keys, secret, request);
    if (needsSession(access) && caller.via !== 'session') throw keyIsNotEnough(app, request);
    if (access === 'full' && caller.scope !== 'full') {
      throw new ServiceError('forbidden', 'This key has scope read; the operation needs scope full.');
    }
    if (caller.isSuspended && isChange(request) && !allowedWhenSuspended) throw accountIsSuspended();
    if (access === 'operator') await requireOperator(app, caller);
    request.caller = caller;
  });
}

const needsSession = (access: Access | undefined): boolean => access === 'session' || access === 'operator';

/**
 * Throws `forbidden` for an account that is suspended or no operator's. 15 minutes after the person proved who they
 * are, throws `password_required`, or `sign_in_required` if the account has no password.
 */
async function requireOperator({ db }: App, { accountId, operator, isSuspended }: Caller): Promise<void> {
  if (operator === undefined) {
    throw new ServiceError('forbidden', 'Only an operator of this service may do this, and this account is none.');
  }
  // A suspended operator cannot use the operator's reads either: they show the data of other accounts.
  if (isSuspended) throw accountIsSuspended();
  if (operator === 'confirmed') return;
  if (await hasPassword(db, accountId)) {
    throw new ServiceError(
      'password_required',
      'The password was not checked in the last 15 minutes. Send it to POST /v1/auth/confirm-password and try again.',
    );
  }
  throw new ServiceError(
    'sign_in_required',
    'The provider did not ask you in the last 15 minutes. Sign in with GET /v1/auth/oidc/sign-in?confirm=true.',
  );
}

/** Whether a request may change something. A GET that needs scope full opens a connection to a program in a machine. */
const isChange = ({ method, routeOptions }: FastifyRequest): boolean =>
  routeOptions.config.access === 'full' || (method !== 'GET' && method !== 'HEAD');

function keyIsNotEnough(app: App, request: FastifyRequest): ServiceError {
  const { sessionHint = '' } = request.routeOptions.config;
  return new ServiceError(
    'forbidden',
    `This operation needs a dashboard session, not an API key: ${howToSignIn(app)} instead of Authorization. ${sessionHint}`.trimEnd(),
  );
}

const howToSignIn = (app: App): string =>
  `sign in with POST /v1/auth/sign-in, then send the cookie of its answer and the header Origin: ${app.config.auth.publicUrl}`;

const BEARER = /^Bearer +(\S+)$/i;

/** Returns the caller, by the API key or else the session cookie, with at most one query. Throws `unauthenticated`. */
async function authenticate(app: App, keys: KeyLookups, secret: string, request: FastifyRequest): Promise<Caller> {
  const { authorization, cookie } = request.headers;
  if (authorization) return authenticateKey(app, keys, authorization);
  if (hasSessionCookie(cookie)) return authenticateSession(app, secret, request);
  throw new ServiceError(
    'unauthenticated',
    needsSession(request.routeOptions.config.access)
      ? `This operation needs a dashboard session: ${howToSignIn(app)}.`
      : 'The request needs the header Authorization: Bearer <API key>.',
  );
}

async function authenticateSession(app: App, secret: string, request: FastifyRequest): Promise<Caller> {
  const token = readSessionCookie(request.headers.cookie, secret);
  const caller = token === undefined ? undefined : await findSessionCaller(app.db, token);
  if (!caller) throw new ServiceError('unauthenticated', 'The session is unknown or has ended. Sign in again.');
  if (request.method !== 'GET' && request.method !== 'HEAD') requireOwnOrigin(request, app.config.auth.publicUrl);
  return caller;
}

async function authenticateKey(app: App, keys: KeyLookups, header: string): Promise<Caller> {
  const key = BEARER.exec(header)?.[1] ?? '';
  const caller = looksLikeKey(key) ? await keys.find(key) : undefined;
  if (!caller) throw new ServiceError('unauthenticated', 'The API key is malformed, unknown, expired or revoked.');
  noteUse(app, caller);
  return caller;
}

/** Writes the time of a key's use, in the background, if the stored time is too old. */
export function noteUse(app: App, { isUseStale, credentialId }: KeyCaller): void {
  if (!isUseStale) return;
  touchKey(app.db, credentialId).catch((error: unknown) => {
    app.log.warn({ err: error }, 'the last use of a key could not be written');
  });
}

/** The caller of a route that is not public. */
export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('A public route asked for its caller.');
  return request.caller;
}
