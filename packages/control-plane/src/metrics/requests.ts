// Counts requests by route and status, and writes one log line for each request. Both contain the route's pattern and
// never the URL, because a URL's query may contain private data of the account.
import type { FastifyInstance } from 'fastify';
import { Counter, type Registry } from 'prom-client';

export type RequestCounter = Counter<'method' | 'route' | 'status'>;

/** Adds the counter to the metrics of one replica. */
export function createRequestCounter(registry: Registry): RequestCounter {
  return new Counter({
    name: 'sandbar_http_requests_total',
    help: 'Requests answered.',
    labelNames: ['method', 'route', 'status'],
    registers: [registry],
  });
}

/** Counts and logs every answer of a server. */
export function countRequests(server: FastifyInstance, requests: RequestCounter): void {
  server.addHook('onResponse', async (request, reply) => {
    const { method } = request;
    const route = request.routeOptions.url ?? 'unknown';
    const status = reply.statusCode;
    requests.inc({ method, route, status });
    request.log.info(
      {
        method,
        route,
        status,
        ms: Math.round(reply.elapsedTime * 10) / 10,
        ...(request.caller ? { account_id: request.caller.accountId } : {}),
      },
      'request',
    );
  });
}
