// Authentication and authorisation, before anything of the request's content is looked at.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify';
import { looksLikeKey } from '../api-keys/key.ts';
import { findCaller, touchKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import type { Caller } from './route-config.ts';

/** Installs the hook and the check that every route says who may use it. Call it before the first route. */
export function installAuth(server: FastifyInstance, app: App): void {
  server.decorateRequest('caller', null);
  server.addHook('onRoute', (route: RouteOptions) => {
    if (!route.config?.access) throw new Error(`${String(route.method)} ${route.url} does not declare config.access.`);
  });
  server.addHook('onRequest', async (request) => {
    const { access } = request.routeOptions.config;
    // Without a route it is a 404, which needs no credential.
    if (access === undefined || access === 'public') return;
    const caller = await authenticate(app, request);
    if (access === 'session' && caller.via !== 'session') {
      throw new ServiceError('forbidden', 'This operation accepts a dashboard session only, not an API key.');
    }
    if (access === 'full' && caller.scope !== 'full') {
      throw new ServiceError('forbidden', 'This key has scope read; the operation needs scope full.');
    }
    request.caller = caller;
  });
}

const BEARER = /^Bearer +(\S+)$/i;

async function authenticate(app: App, request: FastifyRequest): Promise<Caller> {
  const header = request.headers.authorization;
  if (!header)
    throw new ServiceError('unauthenticated', 'The request needs the header Authorization: Bearer <API key>.');
  const key = BEARER.exec(header)?.[1] ?? '';
  const caller = looksLikeKey(key) ? await findCaller(app.db, key) : undefined;
  if (!caller) throw new ServiceError('unauthenticated', 'The API key is malformed, unknown, expired or revoked.');
  if (caller.isUseStale) {
    touchKey(app.db, caller.keyId).catch((error: unknown) => {
      app.log.warn({ err: error }, 'the last use of a key could not be written');
    });
  }
  return caller;
}

/** The caller of a route that is not public. */
export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('A public route asked for its caller.');
  return request.caller;
}
