// The only code that turns an error into an HTTP status. A ServiceError has its status in the error table. Fastify's
// own errors are in a list below. What clients are told about a failure of the database is in db/refusals.ts. Every other
// error is `internal_error`.
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { refusalOfDatabase } from '../db/refusals.ts';
import { REQUEST_ID_HEADER, requestIdOf } from './request-id.ts';
import { describeFailure } from './validation.ts';

/** `Retry-After` of a 503 whose error (for example a host's) does not say when to retry. */
const DEFAULT_RETRY_SEC = 5;
const JSON_TYPE = 'application/json; charset=utf-8';

/** Fastify's own errors, by their code. */
const FASTIFY_ERRORS: Record<string, [ErrorCode, string]> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ['payload_too_large', 'The body must be at most 1 MiB.'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ['unsupported_media_type', 'The body must be application/json.'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ['validation_error', 'The body is not as long as Content-Length says.'],
  FST_ERR_BAD_URL: ['not_found', 'There is nothing at this path.'],
  FST_ERR_MAX_PARAM_LENGTH: ['not_found', 'There is nothing at this path.'],
};

/** Turns anything thrown into the error the client is told. */
export function toServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error;
  const ofDatabase = refusalOfDatabase(error);
  if (ofDatabase) return ofDatabase;
  const { validation, validationContext, code, statusCode } = error as Partial<FastifyError>;
  if (validation) {
    // A path parameter that is not a UUID cannot name any resource, so answer 404 as for any other absent resource.
    const code = validationContext === 'params' ? 'not_found' : 'validation_error';
    return new ServiceError(code, describeFailure(validation, validationContext));
  }
  const known = FASTIFY_ERRORS[code ?? ''];
  if (known) return new ServiceError(known[0], known[1]);
  // Only Fastify's body parser sets this status. A SyntaxError without it comes from our own code and is a bug.
  if (statusCode === 400) {
    return new ServiceError('validation_error', 'The body must be valid JSON.');
  }
  return new ServiceError('internal_error', 'Something went wrong on our side.', { cause: error });
}

/** The error handler of the server. */
export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const told = toServiceError(error);
  request.errorCode = told.code;
  if (told.code === 'internal_error') request.log.error({ err: told.cause ?? told }, 'a request failed');
  if (told.code === 'database_unavailable') request.log.warn({ err: told.cause }, 'the database does not answer');
  if (told.code === 'host_unavailable') request.log.warn({ err: told.cause }, 'the host does not answer');
  if (told.code === 'payments_unavailable') {
    request.log.error({ err: told.cause }, 'a request to the payment provider failed');
  }
  if (told.code === 'unauthenticated') reply.header('www-authenticate', 'Bearer realm="sandbar"');
  const retryAfterSec = told.retryAfterSec ?? (told.status === 503 ? DEFAULT_RETRY_SEC : undefined);
  if (retryAfterSec !== undefined) reply.header('retry-after', String(retryAfterSec));
  reply.code(told.status).type(JSON_TYPE).send(errorBody(told, request.id));
}

/**
 * The body of an error response. `internal_error` includes the request id, by which the operator can search the log.
 */
export function errorBody(error: ServiceError, requestId: string): { detail: string; code: ErrorCode } {
  const detail = error.code === 'internal_error' ? `${error.message} (request ${requestId})` : error.message;
  return { detail, code: error.code };
}

/**
 * Answers a URL that Fastify cannot parse, such as a URL with a broken percent escape. Fastify runs no hooks for it.
 */
export function sendFrameworkError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  reply.header(REQUEST_ID_HEADER, requestIdOf(request.raw));
  sendError(error, request, reply);
}

/** The raw bytes of the response to input that is no valid HTTP request. */
export function malformedRequestResponse(code: string | undefined): string {
  const tooLarge = code === 'HPE_HEADER_OVERFLOW';
  const timeout = code === 'ERR_HTTP_REQUEST_TIMEOUT';
  const [status, detail] = tooLarge
    ? ['431 Request Header Fields Too Large', 'The path, the query and the headers must be at most 16 KiB together.']
    : timeout
      ? ['408 Request Timeout', 'The request did not arrive in time.']
      : ['400 Bad Request', 'The request is not valid HTTP.'];
  return rawResponse(status ?? '', detail ?? '');
}

/** What a client is told that sends plain HTTP to a service that speaks TLS. */
export const plainHttpDetail = 'This service speaks HTTPS. Use an address that begins with https://.';

/** The raw bytes of the response to plain HTTP on a port for TLS. */
export const plainHttpResponse = (): string => rawResponse('400 Bad Request', plainHttpDetail);

function rawResponse(status: string, detail: string): string {
  const body = JSON.stringify({ detail, code: 'validation_error' });
  return (
    `HTTP/1.1 ${status}\r\ncontent-type: ${JSON_TYPE}\r\n${REQUEST_ID_HEADER}: ${requestIdOf({ headers: {} })}\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}
