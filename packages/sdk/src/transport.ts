// Sends the HTTP requests of all parts of the client: adds headers, turns failures into errors, and retries.
import { ApiError, apiErrorOf, ConnectionError } from './errors.ts';
import { isUnavailable, retryRequest } from './retry.ts';
import { sendStream } from './send-stream.ts';
import type { Settings } from './settings.ts';

const USER_AGENT = `sandbar-sdk-ts/0.1.0 node/${process.versions.node}`;
const DEFAULT_RETRY_FOR_SEC = 60;

export type TransportOptions = {
  /** The name of the calling program, put before the client's own User-Agent. */
  userAgent?: string | undefined;
  /** How long a request is retried, seconds. 0: never. */
  retryForSec?: number | undefined;
};

export type RequestOptions = {
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  /** Instead of `body`: bytes, opened again for each attempt. */
  content?: () => string | Uint8Array | AsyncIterable<Uint8Array>;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /**
   * Whether the request may be sent again when its answer was lost, because sending it twice has the same effect as
   * sending it once. Default: true for every method but POST.
   */
  isRepeatable?: boolean;
  /** Whether there is only one attempt, because `content` can be opened only once. */
  isSentOnce?: boolean;
};

/**
 * Called when the answer to a request was lost and its retry was refused, such as a second destroy with 404. If the
 * service has carried out the first request, this function returns the result of that request; otherwise it throws the
 * refusal.
 */
export type FindEarlierResult<T> = (refusal: ApiError) => Promise<T>;

export class Transport {
  readonly baseUrl: string;
  /** How long a request is retried, ms. 0: never. */
  readonly retryForMs: number;
  /** The header `User-Agent`. */
  readonly userAgent: string;
  readonly #apiKey: string;
  #hasContact = false;

  constructor({ baseUrl, apiKey }: Settings, { userAgent, retryForSec }: TransportOptions = {}) {
    this.baseUrl = baseUrl;
    this.retryForMs = (retryForSec ?? DEFAULT_RETRY_FOR_SEC) * 1000;
    this.#apiKey = apiKey;
    this.userAgent = userAgent === undefined ? USER_AGENT : `${userAgent} ${USER_AGENT}`;
  }

  /** The header `Authorization`. */
  get authorization(): string {
    return `Bearer ${this.#apiKey}`;
  }

  /**
   * Returns the JSON of a successful answer. Throws ApiError, ConnectionError, or the reason of an aborted `signal`.
   */
  json<T>(method: string, path: string, options: RequestOptions = {}, findEarlier?: FindEarlierResult<T>): Promise<T> {
    const attempt = async () =>
      parseJson<T>(await this.#readText(await this.#sendOnce(method, path, options), options));
    return this.#retry(attempt, method, options, findEarlier);
  }

  /** Returns the text of a successful answer. Throws as `json` does. */
  text(method: string, path: string, options: RequestOptions = {}): Promise<string> {
    const attempt = async () => this.#readText(await this.#sendOnce(method, path, options), options);
    return this.#retry(attempt, method, options);
  }

  /** Sends a request whose answer has no body. Throws as `json` does. */
  run(
    method: string,
    path: string,
    options: RequestOptions = {},
    findEarlier?: FindEarlierResult<void>,
  ): Promise<void> {
    const attempt = async () => {
      await this.#readText(await this.#sendOnce(method, path, options), options);
    };
    return this.#retry(attempt, method, options, findEarlier);
  }

  /** Returns a successful answer with its body unread. Throws as `json` does. */
  open(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    return this.#retry(() => this.#sendOnce(method, path, options), method, options);
  }

  async #retry<T>(
    attempt: () => Promise<T>,
    method: string,
    options: RequestOptions,
    findEarlier?: FindEarlierResult<T>,
  ): Promise<T> {
    let mayBeDone = false;
    const noteOutcome = (error: unknown) => {
      if (isUnavailable(error)) mayBeDone = true;
      throw error;
    };
    try {
      return await retryRequest(() => attempt().catch(noteOutcome), {
        forMs: options.isSentOnce ? 0 : this.retryForMs,
        isRepeatable: options.isRepeatable ?? method !== 'POST',
        hasContact: () => this.#hasContact,
        signal: options.signal,
      });
    } catch (error) {
      const isRefusal = error instanceof ApiError && !isUnavailable(error);
      if (mayBeDone && isRefusal && findEarlier !== undefined) return findEarlier(error);
      throw error;
    }
  }

  async #sendOnce(method: string, path: string, options: RequestOptions): Promise<Response> {
    const { query, signal } = options;
    const url = `${this.baseUrl}${path}${queryString(query, path.includes('?') ? '&' : '?')}`;
    const headers = this.#headersOf(options);
    const content = options.content?.() ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    const response =
      typeof content === 'object' && Symbol.asyncIterator in content
        ? await sendStream(url, { method, headers, signal }, content)
        : await this.#fetch(url, { method, headers }, content, signal);
    this.#hasContact = true;
    if (response.ok) return response;
    throw await readError(response);
  }

  #headersOf({ body, content, headers = {} }: RequestOptions): Record<string, string> {
    return {
      authorization: this.authorization,
      'user-agent': this.userAgent,
      accept: 'application/json',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(content === undefined ? {} : { 'content-type': 'application/octet-stream' }),
      ...headers,
    };
  }

  async #fetch(
    url: string,
    init: RequestInit,
    body: string | Uint8Array | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    if (body !== undefined) init.body = body as string | Uint8Array<ArrayBuffer>;
    if (signal) init.signal = signal;
    // `Request` throws a TypeError for invalid input, such as a header with a line break. A retry would not help.
    const request = new Request(url, init);
    try {
      return await fetch(request);
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.baseUrl, error);
    }
  }

  async #readText(response: Response, { signal }: RequestOptions): Promise<string> {
    try {
      return await response.text();
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.baseUrl, error);
    }
  }
}

function parseJson<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    const detail = 'the answer is not JSON: is this the address of a Sandbar service?';
    throw new ApiError({ status: 200, code: 'unknown', detail, requestId: null, retryAfterSec: null });
  }
}

/** The error that a refusal tells. */
export async function readError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  let body: { code?: unknown; detail?: unknown } = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    // The response is not JSON, so it came, for example, from a proxy. The error below still has its status.
  }
  const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
  return apiErrorOf({
    status: response.status,
    code: typeof body.code === 'string' ? body.code : 'unknown',
    detail: typeof body.detail === 'string' ? body.detail : `HTTP ${response.status} ${response.statusText}`.trim(),
    requestId: response.headers.get('x-request-id'),
    retryAfterSec: Number.isFinite(retryAfter) ? retryAfter : null,
  });
}

function queryString(query: RequestOptions['query'] = {}, joint: string): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return given.length === 0 ? '' : `${joint}${new URLSearchParams(given)}`;
}
