// What a route's declaration says about an operation beyond its schemas: which errors it can answer.
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { FastifyContextConfig, FastifySchema } from 'fastify';

export type OperationFacts = { schema: FastifySchema; config: FastifyContextConfig };

/** Whether every answer of the operation tells how its bucket stands. */
export const isLimited = ({ rateLimit = 'none' }: FastifyContextConfig): boolean => rateLimit !== 'none';

/** Every code the operation can answer: those its shape implies, then those it declares. */
export function errorCodesOf({ schema, config }: OperationFacts): ErrorCode[] {
  const codes: ErrorCode[] = [];
  if (config.access !== 'public') codes.push('unauthenticated');
  if (config.access === 'full' || config.access === 'session') codes.push('forbidden');
  if (isLimited(config)) codes.push('rate_limited');
  // A parameter or body that the operation does not know is refused everywhere.
  codes.push('validation_error');
  if (schema.params) codes.push('not_found');
  if (schema.body) codes.push('payload_too_large', 'unsupported_media_type');
  return [...new Set<ErrorCode>([...codes, ...(config.errors ?? []), 'internal_error', 'database_unavailable'])];
}
