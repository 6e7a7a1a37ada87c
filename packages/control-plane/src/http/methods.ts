// Answers 405, with the list of allowed methods, when a known path does not support a request's method. Fastify would
// answer 404. So once all routes are known, each path gets one more route for all other methods.
import { METHODS as NODE_METHODS } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, HTTPMethods, RouteOptions } from 'fastify';

/** All methods that Node can read, except CONNECT, which never reaches a route. */
const METHODS = NODE_METHODS.filter((method) => method !== 'CONNECT') as HTTPMethods[];
const OURS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']);

/** Makes Fastify accept methods that no route of ours uses, so that they can get a 405. Their bodies are ignored. */
export function acceptEveryMethod(server: FastifyInstance): void {
  for (const method of METHODS) {
    if (!OURS.has(method)) server.addHttpMethod(method, { overrideExisting: true });
  }
}

/**
 * Collects all routes that are added from now on. After the last route, call the function that it returns, which adds
 * the routes that answer 405.
 */
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
    // Answer in onRequest, before the body is parsed, so that an invalid body does not change the response.
    onRequest: async (_request, reply) => {
      reply.header('allow', allow);
      throw new ServiceError('method_not_allowed', `This path answers ${allow}.`);
    },
    handler: async () => undefined,
  });
}
