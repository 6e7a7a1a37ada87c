// The error type of the service and the table of its codes. Domain code throws a code and a sentence; only the HTTP
// layers of the control plane and of the host agent turn the code into an HTTP status.

/**
 * Every `code` that an error response can have, with its HTTP status and a text that says when it is used. The OpenAPI
 * document quotes this text.
 */
export const ERROR_TABLE = {
  validation_error: {
    status: 400,
    when: 'A parameter or the body is invalid; detail names the field and what it allows.',
  },
  authorization_pending: {
    status: 400,
    when: 'Nobody has answered the code of this device login yet. Poll again after interval seconds.',
  },
  slow_down: {
    status: 400,
    when: 'The device login was polled too early. Wait 5 seconds longer between polls from now on.',
  },
  expired_token: {
    status: 400,
    when: 'The code of the device login has expired. For its device_code also: it is unknown, or its key was taken.',
  },
  access_denied: {
    status: 400,
    when: 'The person denied the device login, or their account may not make keys any more.',
  },
  unauthenticated: {
    status: 401,
    when: 'No credential, or one that is malformed, unknown, expired, revoked or spent.',
  },
  insufficient_balance: {
    status: 402,
    when: 'The prepaid wallet is empty; top it up. For a create or a start.',
  },
  forbidden: {
    status: 403,
    when: 'The credential cannot do this, or the account is suspended. A retry does not help.',
  },
  password_required: {
    status: 403,
    when: 'The operation asks for the password again: POST /v1/auth/confirm-password, then repeat the request.',
  },
  sign_in_required: {
    status: 403,
    when: 'The account has no password, so the person must sign in again: GET /v1/auth/oidc/sign-in?confirm=true.',
  },
  quota_exceeded: {
    status: 403,
    when: 'A quota of the account would be exceeded; detail names the dimension, with used, requested and limit.',
  },
  not_found: { status: 404, when: 'It does not exist, or it belongs to another account.' },
  method_not_allowed: { status: 405, when: 'The path exists, the method does not.' },
  conflict: { status: 409, when: 'The present state does not allow it; detail says why.' },
  endpoint_retired: {
    status: 410,
    when: 'This endpoint was retired; detail and the Link header name its replacement.',
  },
  output_expired: {
    status: 410,
    when: "The output of an ended job was dropped, because its machine's newer jobs needed the room.",
  },
  payload_too_large: { status: 413, when: 'The body is over 1 MiB.' },
  unsupported_media_type: { status: 415, when: 'The body is not application/json.' },
  range_not_satisfiable: {
    status: 416,
    when: 'The range begins behind the end of the file; Content-Range has its size.',
  },
  rate_limited: { status: 429, when: 'Too many requests; Retry-After says in how many seconds one is allowed.' },
  internal_error: { status: 500, when: 'A bug of the service; detail carries the request id and nothing internal.' },
  port_not_open: { status: 502, when: 'Nothing in the machine listens on that port; detail names the open ports.' },
  disk_full: { status: 507, when: "The machine's own disk has no room for the file." },
  fleet_capacity: { status: 503, when: 'No host has room: a limit of the fleet, not an account quota. Retry later.' },
  host_unavailable: { status: 503, when: "The machine's host does not answer. Retry later." },
  payments_unavailable: {
    status: 503,
    when: 'The payment provider does not answer, or refuses the request of the service. Retry later.',
  },
  shutting_down: { status: 503, when: 'The service is shutting down, or being restarted. Retry later.' },
  database_unavailable: { status: 503, when: 'The database does not answer. Retry later.' },
} as const satisfies Record<string, { status: number; when: string }>;

export type ErrorCode = keyof typeof ERROR_TABLE;

/** An error that is reported to the client: a code of the table, and a sentence with the reason and the remedy. */
export class ServiceError extends Error {
  readonly code: ErrorCode;
  /** Seconds after which a retry makes sense; sent as the header `Retry-After`. */
  readonly retryAfterSec: number | undefined;

  constructor(code: ErrorCode, detail: string, options: { retryAfterSec?: number; cause?: unknown } = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'ServiceError';
    this.code = code;
    this.retryAfterSec = options.retryAfterSec;
  }

  get status(): number {
    return ERROR_TABLE[this.code].status;
  }
}

/** Whether a value is a code of the table. Needed for error bodies of other processes, which may hold any value. */
export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === 'string' && Object.hasOwn(ERROR_TABLE, code);
}
