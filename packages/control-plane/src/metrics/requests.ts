// Counts requests by route and status, errors by code, and writes one log line for each request. All contain the
// route's pattern and never the URL, because a URL's query may contain private data of the account.
import type { FastifyInstance } from 'fastify';
import type { Metrics } from './metrics.ts';

/** Counts and logs every answer of a server. */
export function countRequests(server: FastifyInstance, { requests, errors }: Metrics): void {
  server.decorateRequest('errorCode', undefined);
  server.addHook('onResponse', async (request, reply) => {
    const { method, errorCode } = request;
    const route = request.routeOptions.url ?? 'unknown';
    const status = reply.statusCode;
    requests.inc({ method, route, status });
    if (errorCode !== undefined) errors.inc({ code: errorCode });
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
