// What a call can throw: the service's own error, with its code, or that nobody answered.

/** The service answered with an error. */
export class ApiError extends Error {
  override readonly name: string = 'ApiError';
  /** HTTP status. */
  readonly status: number;
  /** A code of the service's error table, such as `conflict`; `unknown` when the answer was not of the service. */
  readonly code: string;
  /** One sentence: what is wrong and what to do. */
  readonly detail: string;
  /** Names the request in the service's log. */
  readonly requestId: string | null;
  /** Seconds after which a retry makes sense, where the service said so. */
  readonly retryAfterSec: number | null;

  constructor(answer: {
    status: number;
    code: string;
    detail: string;
    requestId: string | null;
    retryAfterSec: number | null;
  }) {
    super(`${answer.code}: ${answer.detail}`);
    this.status = answer.status;
    this.code = answer.code;
    this.detail = answer.detail;
    this.requestId = answer.requestId;
    this.retryAfterSec = answer.retryAfterSec;
  }
}

/** 401: the key is missing, malformed, unknown, expired or revoked. */
export class AuthenticationError extends ApiError {
  override readonly name = 'AuthenticationError';
}

/** 402: the prepaid wallet is empty. */
export class InsufficientBalanceError extends ApiError {
  override readonly name = 'InsufficientBalanceError';
}

/** 403 `quota_exceeded`: a dimension of the account's quota is full; retry once something is freed. */
export class QuotaExceededError extends ApiError {
  override readonly name = 'QuotaExceededError';
}

/** 410: the endpoint was retired; this client is too old for the service. */
export class GoneError extends ApiError {
  override readonly name = 'GoneError';
}

/** 429: too many requests; `retryAfterSec` says when one is allowed. */
export class RateLimitedError extends ApiError {
  override readonly name = 'RateLimitedError';
}

const CLASSES: Record<string, typeof ApiError> = {
  unauthenticated: AuthenticationError,
  insufficient_balance: InsufficientBalanceError,
  quota_exceeded: QuotaExceededError,
  endpoint_retired: GoneError,
  rate_limited: RateLimitedError,
};

/** The class for a code that callers tell apart, ApiError for all others. */
export function apiErrorOf(answer: ConstructorParameters<typeof ApiError>[0]): ApiError {
  const Class = CLASSES[answer.code] ?? ApiError;
  return new Class(answer);
}

/** Nobody answered at the base URL, or the connection broke. `cause` is the error of `fetch`. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  readonly baseUrl: string;

  constructor(baseUrl: string, cause: unknown) {
    super(`the service does not answer at ${baseUrl} (${reasonOf(cause)})`, { cause });
    this.baseUrl = baseUrl;
  }
}

/** No base URL or key was given and none was found. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}

/** `fetch` hides the reason in the cause of its error. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause;
  if (cause instanceof Error && 'code' in cause && typeof cause.code === 'string') return cause.code;
  return cause instanceof Error ? cause.message : error.message;
}
