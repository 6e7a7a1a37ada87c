// The errors that a call can throw: the service answered with an error or did not answer, or a setting is missing.

/** The service answered with an error. */
export class ApiError extends Error {
  override readonly name: string = 'ApiError';
  /** HTTP status. */
  readonly status: number;
  /**
   * A code of the service's error table, such as `conflict`; `unknown` when a proxy or other server answered instead.
   */
  readonly code: string;
  /** One sentence with the reason and the remedy. */
  readonly detail: string;
  /** The id of this request in the service's log. */
  readonly requestId: string | null;
  /** Seconds after which a retry makes sense (`Retry-After`), or null when the service did not say. */
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

/** 403 `quota_exceeded`: a quota of the account is full; try again after freeing something. */
export class QuotaExceededError extends ApiError {
  override readonly name = 'QuotaExceededError';
}

/** 410 `endpoint_retired`: the endpoint no longer exists, because this client is too old for the service. */
export class GoneError extends ApiError {
  override readonly name = 'GoneError';
}

/** 410 `output_expired`: the output of an ended job was dropped, because newer jobs of its machine needed the space. */
export class OutputExpiredError extends ApiError {
  override readonly name = 'OutputExpiredError';
}

/** 429: too many requests; the next one is allowed after `retryAfterSec`. */
export class RateLimitedError extends ApiError {
  override readonly name = 'RateLimitedError';
}

/** 507: the machine's own disk has no room. */
export class DiskFullError extends ApiError {
  override readonly name = 'DiskFullError';
}

const CLASSES: Record<string, typeof ApiError> = {
  unauthenticated: AuthenticationError,
  insufficient_balance: InsufficientBalanceError,
  quota_exceeded: QuotaExceededError,
  endpoint_retired: GoneError,
  output_expired: OutputExpiredError,
  rate_limited: RateLimitedError,
  disk_full: DiskFullError,
};

/** Makes the error for an error response: an instance of the class for its code, or else of ApiError. */
export function apiErrorOf(answer: ConstructorParameters<typeof ApiError>[0]): ApiError {
  const Class = CLASSES[answer.code] ?? ApiError;
  return new Class(answer);
}

/** For a retried delete: a 404 means that the first request has deleted the resource. Throws every other error. */
export async function acceptNotFound(refusal: ApiError): Promise<void> {
  if (refusal.code !== 'not_found') throw refusal;
}

/** No server answered at the base URL, or the connection broke. `cause` is the error of `fetch`. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  readonly baseUrl: string;
  /** True when no connection was made, so the service certainly did not get the request. */
  readonly isUnsent: boolean;

  constructor(baseUrl: string, cause: unknown) {
    const reason = reasonOf(cause);
    super(`the service does not answer at ${baseUrl} (${reason})`, { cause });
    this.baseUrl = baseUrl;
    this.isUnsent = UNSENT_REASONS.has(reason);
  }
}

/** Error codes of a failed attempt to connect: nobody listens, the address is wrong, or the certificate is refused. */
const UNSENT_REASONS = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
  // `fetch` refuses some ports, such as 1, without trying to connect.
  'bad port',
  'ERR_SSL_WRONG_VERSION_NUMBER',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'CERT_HAS_EXPIRED',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

/** The file was changed while it was downloaded, so the rest would not belong to the bytes that were read before. */
export class FileChangedError extends Error {
  override readonly name = 'FileChangedError';

  constructor() {
    super('the file was changed while it was read');
  }
}

/** The address or the key of the service is missing or malformed. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}

/** The reason of a failed request, such as ECONNREFUSED. `fetch` puts it into the `cause` of its error. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ('code' in error && typeof error.code === 'string') return error.code;
  const cause = error.cause;
  if (cause instanceof Error && 'code' in cause && typeof cause.code === 'string') return cause.code;
  return cause instanceof Error ? cause.message : error.message;
}
