// Counts requests by route and status, and writes one log line for each request. The line names the pattern of the
// route, not the URL, since a query may contain private data.
import type { FastifyInstance } from 'fastify';

export type RequestCounter = Map<string, number>;

/** The `method`, `route` and `status` that make up the key of a counter. */
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
