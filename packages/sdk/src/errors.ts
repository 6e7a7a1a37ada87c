// The errors of the client itself: no answer, a wrong setting, a lost job, or a file that changed during its download.

/** No server answered at the base URL, or the connection broke. `cause` is the error of `fetch`. */
export class ConnectionError extends Error {
  override readonly name: string = 'ConnectionError';
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

/** The call with its retries took longer than its `timeoutMs`. The service may have carried it out. */
export class TimeoutError extends ConnectionError {
  override readonly name = 'TimeoutError';

  constructor(baseUrl: string, timeoutMs: number) {
    super(baseUrl, new Error(`no answer within ${timeoutMs} ms`));
  }
}

/**
 * The machine stopped or died while a job ran in it, so the job has no result. Use `jobId` to read the output that the
 * job had written until then.
 */
export class JobLostError extends Error {
  override readonly name = 'JobLostError';
  readonly machineId: string;
  readonly jobId: string;

  constructor(machineId: string, jobId: string) {
    super(`the machine ${machineId} stopped or died while the job ${jobId} ran`);
    this.machineId = machineId;
    this.jobId = jobId;
  }
}

/** The file was changed during its download, so its remaining bytes do not fit the bytes that were read before. */
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
