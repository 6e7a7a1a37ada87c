// Counts requests by route and status, and writes the one log line a request leaves. The line names the route's pattern,
// never the URL: queries may hold what is nobody's business.
import type { FastifyInstance } from 'fastify';

export type RequestCounter = Map<string, number>;

/** `method`, `route` and `status` of a counter's key. */
export const readCounterKey = (key: string): string[] => key.split(' ');

export function addRequestCounter(server: FastifyInstance, requests: RequestCounter): void {
  server.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'unknown';
    const key = `${request.method} ${route} ${reply.statusCode}`;
    requests.set(key, (requests.get(key) ?? 0) + 1);
    request.log.info(
      {
        method: request.method,
        route,
        status: reply.statusCode,
        ms: Math.round(reply.elapsedTime * 10) / 10,
        ...(request.caller ? { account_id: request.caller.accountId } : {}),
      },
      'request',
    );
  });
}
