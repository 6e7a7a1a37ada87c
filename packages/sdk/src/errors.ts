// What a call can throw: the service's own error, with its code, or that nobody answered.

/** The service answered with an error. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
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
