// How the error of a call crosses the channel: `refused` (the guest refused, nothing was done), `violation` (the guest
// violated its protocol), `broken` (everything else: it is unknown what was done).
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { GuestProtocolError } from '../guest/guest-protocol-error.ts';
import { decodeJson, encodeJson, ProtocolViolation } from './protocol.ts';

/** The codes that a refusal may have. The other codes are about the service, which neither guest nor gateway speaks for. */
const CODES = ['validation_error', 'not_found', 'conflict', 'host_unavailable'] as const satisfies ErrorCode[];
/** The longest message that is passed on, in characters. */
const MAX_MESSAGE = 1200;
/** After how many seconds a guest that lacked the means may be asked again. */
const RETRY_AFTER_SEC = 5;

export function encodeFailure(error: unknown): Buffer {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_MESSAGE);
  if (error instanceof ServiceError) return encodeJson({ type: 'refused', code: error.code, message });
  return encodeJson({ type: error instanceof GuestProtocolError ? 'violation' : 'broken', message });
}

/** Returns the error that a failure says. Throws {@link ProtocolViolation} when it says none. */
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
