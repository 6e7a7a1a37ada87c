// The errors with which a guest may refuse a request.
import { isErrorCode, ServiceError } from '@sandbar/contract/errors.ts';

/**
 * Longest error text that is passed on from the guest, in characters. It fits the paths of five processes that use a
 * busy volume.
 */
const MAX_DETAIL = 900;
/** The error codes that a guest may use. The other codes are about the service, which a guest must not speak for. */
const CODES: readonly unknown[] = ['validation_error', 'not_found', 'conflict', 'disk_full', 'port_not_open'];
/** Seconds until a client may retry what a guest agent could not do. */
const RETRY_AFTER_SEC = 5;

/**
 * Returns the error for a guest's refusal. A guest that refuses has done nothing, even when it only lacked resources,
 * such as memory for a process. `status`: that of the answer, for the text of the error.
 */
export function refusalOf({ code, detail }: { code?: unknown; detail?: unknown }, status?: number): ServiceError {
  const text = String(detail).slice(0, MAX_DETAIL);
  if (CODES.includes(code) && isErrorCode(code)) return new ServiceError(code, text);
  const number = status === undefined ? '' : ` (${status})`;
  return new ServiceError('host_unavailable', `the machine's guest agent could not do it${number}: ${text}`, {
    retryAfterSec: RETRY_AFTER_SEC,
  });
}
