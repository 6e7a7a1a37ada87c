// Derives from the declaration of a route which errors its operation can return.
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { FastifyContextConfig, FastifySchema } from 'fastify';

export type OperationFacts = { schema: FastifySchema; config: FastifyContextConfig };

/** Whether the answers of the operation have RateLimit headers. */
export const isLimited = ({ rateLimit = 'none' }: FastifyContextConfig): boolean => rateLimit !== 'none';

/**
 * Returns all error codes of the operation: first those that follow from its method, access and schema, then those that
 * its route declares.
 */
export function errorCodesOf({ schema, config }: OperationFacts): ErrorCode[] {
  const codes: ErrorCode[] = [];
  if (config.access !== 'public') codes.push('unauthenticated');
  if (config.access !== 'public' && config.access !== 'read') codes.push('forbidden');
  if (config.access === 'operator') codes.push('password_required', 'sign_in_required');
  if (isLimited(config)) codes.push('rate_limited');
  // Every operation refuses parameters and bodies that it does not declare.
  codes.push('validation_error');
  if (schema.params) codes.push('not_found');
  if (schema.body) codes.push('payload_too_large', 'unsupported_media_type');
  return [
    ...new Set<ErrorCode>([
      ...codes,
      ...(config.errors ?? []),
      'internal_error',
      'database_unavailable',
      'shutting_down',
    ]),
  ];
}
