// What the trace of a request says about it. The URL is not in it, because a query may contain private data.
import type { Attributes } from '@sandbar/tracing/tracing.ts';
import type { FastifyRequest } from 'fastify';

export function describeRequest(
  { id, caller, errorCode, params, routeOptions }: FastifyRequest,
  { statusCode }: { statusCode: number },
) {
  const attributes: Attributes = {
    'sandbar.request_id': id,
    'sandbar.account_id': caller?.accountId,
    'sandbar.error_code': errorCode,
    'sandbar.machine_id': routeOptions.url?.startsWith('/v1/machines/:id') ? (params as { id: string }).id : undefined,
  };
  // By the conventions of OpenTelemetry, a refusal is no failure of the server.
  return { attributes, error: statusCode >= 500 ? errorCode : undefined };
}
