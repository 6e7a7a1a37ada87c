// The errors that the service answers with: SandbarError, and one class for each code of the error table.
import type { ErrorCode } from '@sandbar/contract/errors.ts';

/** What an error response says. */
export type ErrorAnswer = {
  status: number;
  code: string;
  detail: string;
  requestId: string | null;
  retryAfterSec: number | null;
};

/** The service answered with an error. Each error code that this client knows has its own subclass. */
export class SandbarError extends Error {
  override readonly name: string = 'SandbarError';
  /** HTTP status. */
  readonly status: number;
  /**
   * A code of the service's error table, such as `conflict`; `unknown` when a proxy or other server answered instead.
   */
  readonly code: string;
  /** The reason of the error, and what the caller can do. */
  readonly detail: string;
  /** The id of this request in the service's log. */
  readonly requestId: string | null;
  /** Seconds after which a retry makes sense (`Retry-After`), or null when the service did not say. */
  readonly retryAfterSec: number | null;

  constructor(answer: ErrorAnswer) {
    super(`${answer.code}: ${answer.detail}`);
    this.status = answer.status;
    this.code = answer.code;
    this.detail = answer.detail;
    this.requestId = answer.requestId;
    this.retryAfterSec = answer.retryAfterSec;
  }
}

/** 400: a parameter or the body is invalid; `detail` names the field and what it allows. */
export class ValidationError extends SandbarError {
  override readonly name = 'ValidationError';
}

/** 400: nobody has approved or denied the device login yet. Poll again. Only for logins such as `sandbar login`. */
export class AuthorizationPendingError extends SandbarError {
  override readonly name = 'AuthorizationPendingError';
}

/** 400: a device login was polled too early. Wait 5 seconds longer between polls. */
export class SlowDownError extends SandbarError {
  override readonly name = 'SlowDownError';
}

/** 400: the code of a device login has expired or was used. Log in again. */
export class ExpiredTokenError extends SandbarError {
  override readonly name = 'ExpiredTokenError';
}

/** 400: the person denied the device login, or their account may not make keys any more. */
export class AccessDeniedError extends SandbarError {
  override readonly name = 'AccessDeniedError';
}

/** 401: the key or ticket is missing, malformed, unknown, expired, revoked or spent. */
export class UnauthenticatedError extends SandbarError {
  override readonly name = 'UnauthenticatedError';
}

/** 402: the prepaid wallet is empty, so a machine can be neither created nor started. Top it up. */
export class InsufficientBalanceError extends SandbarError {
  override readonly name = 'InsufficientBalanceError';
}

/** 403: the key may not do this, for example because its scope is `read`, or the account is suspended. */
export class ForbiddenError extends SandbarError {
  override readonly name = 'ForbiddenError';
}

/** 403: the operation needs the password again. Only for sessions of the dashboard. */
export class PasswordRequiredError extends SandbarError {
  override readonly name = 'PasswordRequiredError';
}

/** 403: the operation needs a new sign-in. Only for sessions of the dashboard. */
export class SignInRequiredError extends SandbarError {
  override readonly name = 'SignInRequiredError';
}

/** 403: a quota of the account is full; `detail` names it. Free something or ask for a higher limit. */
export class QuotaExceededError extends SandbarError {
  override readonly name = 'QuotaExceededError';
}

/** 404: the object does not exist, or it belongs to another account. */
export class NotFoundError extends SandbarError {
  override readonly name = 'NotFoundError';
}

/** 405: the path exists, but does not have this method. */
export class MethodNotAllowedError extends SandbarError {
  override readonly name = 'MethodNotAllowedError';
}

/** 409: the present state does not allow the operation; `detail` says why. */
export class ConflictError extends SandbarError {
  override readonly name = 'ConflictError';
}

/** 410: the endpoint no longer exists, because this client is too old for the service. */
export class EndpointRetiredError extends SandbarError {
  override readonly name = 'EndpointRetiredError';
}

/** 410: the output of an ended job was dropped, because newer jobs of its machine needed the space. */
export class OutputExpiredError extends SandbarError {
  override readonly name = 'OutputExpiredError';
}

/** 413: the body is too large. */
export class PayloadTooLargeError extends SandbarError {
  override readonly name = 'PayloadTooLargeError';
}

/** 415: the endpoint does not accept the content type of the body. */
export class UnsupportedMediaTypeError extends SandbarError {
  override readonly name = 'UnsupportedMediaTypeError';
}

/** 416: the range begins after the end of the file. */
export class RangeNotSatisfiableError extends SandbarError {
  override readonly name = 'RangeNotSatisfiableError';
}

/** 429: too many requests. The next request is allowed after `retryAfterSec`. */
export class RateLimitedError extends SandbarError {
  override readonly name = 'RateLimitedError';
}

/** 500: a bug of the service. The operator finds it in the log by `requestId`. */
export class InternalError extends SandbarError {
  override readonly name = 'InternalError';
}

/** 502: nothing in the machine listens on that port; `detail` names the ports that are open. */
export class PortNotOpenError extends SandbarError {
  override readonly name = 'PortNotOpenError';
}

/** 507: the disk of the machine has no room. */
export class DiskFullError extends SandbarError {
  override readonly name = 'DiskFullError';
}

/** 503: no host has room. This is a limit of the fleet, not a quota of the account. Try again later. */
export class FleetCapacityError extends SandbarError {
  override readonly name = 'FleetCapacityError';
}

/** 503: the machine's host does not answer. Try again later. */
export class HostUnavailableError extends SandbarError {
  override readonly name = 'HostUnavailableError';
}

/** 503: the payment provider does not answer. Try again later. */
export class PaymentsUnavailableError extends SandbarError {
  override readonly name = 'PaymentsUnavailableError';
}

/** 503: the service is shutting down or restarting. Try again later. */
export class ShuttingDownError extends SandbarError {
  override readonly name = 'ShuttingDownError';
}

/** 503: the database of the service does not answer. Try again later. */
export class DatabaseUnavailableError extends SandbarError {
  override readonly name = 'DatabaseUnavailableError';
}

/** The class of each code. The compiler reports a code of the contract that has no class here. */
const CLASSES: Record<ErrorCode, typeof SandbarError> = {
  validation_error: ValidationError,
  authorization_pending: AuthorizationPendingError,
  slow_down: SlowDownError,
  expired_token: ExpiredTokenError,
  access_denied: AccessDeniedError,
  unauthenticated: UnauthenticatedError,
  insufficient_balance: InsufficientBalanceError,
  forbidden: ForbiddenError,
  password_required: PasswordRequiredError,
  sign_in_required: SignInRequiredError,
  quota_exceeded: QuotaExceededError,
  not_found: NotFoundError,
  method_not_allowed: MethodNotAllowedError,
  conflict: ConflictError,
  endpoint_retired: EndpointRetiredError,
  output_expired: OutputExpiredError,
  payload_too_large: PayloadTooLargeError,
  unsupported_media_type: UnsupportedMediaTypeError,
  range_not_satisfiable: RangeNotSatisfiableError,
  rate_limited: RateLimitedError,
  internal_error: InternalError,
  port_not_open: PortNotOpenError,
  disk_full: DiskFullError,
  fleet_capacity: FleetCapacityError,
  host_unavailable: HostUnavailableError,
  payments_unavailable: PaymentsUnavailableError,
  shutting_down: ShuttingDownError,
  database_unavailable: DatabaseUnavailableError,
};

/** Makes the error for an error response: an instance of the class for its code, or else of SandbarError. */
export function errorOf(answer: ErrorAnswer): SandbarError {
  const Class = Object.hasOwn(CLASSES, answer.code) ? CLASSES[answer.code as ErrorCode] : SandbarError;
  return new Class(answer);
}

/** For a retried delete: a 404 means that the first request has deleted the resource. Throws every other error. */
export async function acceptNotFound(refusal: SandbarError): Promise<void> {
  if (refusal.code !== 'not_found') throw refusal;
}
