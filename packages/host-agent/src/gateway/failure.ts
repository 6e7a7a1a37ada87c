// Encodes the error of a failed call for the channel, as one of three types: `refused` (the guest refused and did
// nothing), `violation` (the guest violated its protocol), `broken` (any other error: nobody knows what the guest did).
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { GuestProtocolError } from '../guest/guest-protocol-error.ts';
import { decodeJson, encodeJson, ProtocolViolation } from './protocol.ts';

/**
 * The error codes that a refusal may have. The other codes are about the service, which neither the guest nor the
 * gateway may speak for.
 */
const CODES = [
  'validation_error',
  'not_found',
  'conflict',
  'disk_full',
  'port_not_open',
  'host_unavailable',
] as const satisfies ErrorCode[];
/** The longest message that is passed on, in characters. */
const MAX_MESSAGE = 1200;
/** Seconds until a client may retry a call that failed with `host_unavailable`. */
const RETRY_AFTER_SEC = 5;

export function encodeFailure(error: unknown): Buffer {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_MESSAGE);
  if (error instanceof ServiceError) return encodeJson({ type: 'refused', code: error.code, message });
  return encodeJson({ type: error instanceof GuestProtocolError ? 'violation' : 'broken', message });
}

/** Decodes the error in a `failure` frame. Throws {@link ProtocolViolation} when the payload has a wrong shape. */
export function decodeFailure(payload: Buffer): Error {
  const { type, code, message } = Object(decodeJson(payload)) as Record<string, unknown>;
  if (typeof message !== 'string' || message.length > MAX_MESSAGE)
    throw new ProtocolViolation('a failure without text');
  if (type === 'violation') return new GuestProtocolError(message);
  if (type === 'broken') return new Error(message);
  const known = CODES.find((one) => one === code);
  if (type !== 'refused' || known === undefined) throw new ProtocolViolation('a failure of an unknown type');
  return new ServiceError(known, message, known === 'host_unavailable' ? { retryAfterSec: RETRY_AFTER_SEC } : {});
}
