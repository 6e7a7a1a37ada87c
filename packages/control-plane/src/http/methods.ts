// A known path with another method is a 405 that names the right ones. Fastify would say 404, so every path gets a
// route for the methods it does not have, once all routes are known.
import { METHODS as NODE_METHODS } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, HTTPMethods, RouteOptions } from 'fastify';

/** All that Node can read; a CONNECT never reaches a route. */
const METHODS = NODE_METHODS.filter((method) => method !== 'CONNECT') as HTTPMethods[];
const OURS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']);

/** Makes the methods routable that no operation has; what comes as their body is not looked at. */
export function acceptEveryMethod(server: FastifyInstance): void {
  for (const method of METHODS) {
    if (!OURS.has(method)) server.addHttpMethod(method, { overrideExisting: true });
  }
}

/** Collects the routes from now on; the function returned adds the refusals. */
export function watchMethods(server: FastifyInstance): () => void {
  const allowed = new Map<string, Set<string>>();
  server.addHook('onRoute', (route: RouteOptions) => {
    if (route.config?.lenient) return;
    const methods = allowed.get(route.url) ?? new Set();
    for (const method of [route.method].flat()) methods.add(method.toUpperCase());
    allowed.set(route.url, methods);
  });
  return () => {
    for (const [url, methods] of [...allowed]) refuseOthers(server, url, methods);
  };
}

function refuseOthers(server: FastifyInstance, url: string, methods: ReadonlySet<string>): void {
  const allow = [...methods].sort().join(', ');
  server.route({
    url,
    method: METHODS.filter((method) => !methods.has(method)),
    schema: { hide: true },
    config: { access: 'public', lenient: true },
    // Before the body is parsed: what it holds does not matter.
    onRequest: async (_request, reply) => {
      reply.header('allow', allow);
      throw new ServiceError('method_not_allowed', `This path answers ${allow}.`);
    },
    handler: async () => undefined,
  });
}
