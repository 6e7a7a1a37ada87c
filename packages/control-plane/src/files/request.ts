// What the routes of files take from a request.
import type { FastifyRequest } from 'fastify';
import { callerOf } from '../http/auth.ts';
import type { FileTarget } from './target.ts';

/** `query.path` is percent-encoded already, by the hook of query-path.ts. */
export function targetOf(
  request: FastifyRequest<{ Params: { id: string }; Querystring: { path: string } }>,
): FileTarget {
  return { caller: callerOf(request), machineId: request.params.id, path: request.query.path };
}
