// Sends the HTTP requests of all parts of the client: adds headers, turns failures into errors, retries, and ends calls
// that take too long.
import { platform } from '#platform';
import type { CallOptions } from './call-options.ts';
import { ConnectionError, TimeoutError } from './errors.ts';
import { readError } from './read-error.ts';
import { isUnavailable, retryRequest } from './retry.ts';
import { SandbarError } from './service-errors.ts';
import type { Settings } from './settings.ts';
import { limitSilence } from './silence.ts';
import { VERSION } from './version.ts';

const USER_AGENT = `sandbar-sdk-ts/${VERSION} ${platform.runtime}`;
const DEFAULT_RETRY_FOR_SEC = 60;
/** Longer than any call takes, because the service waits at most 60 s for another operation. */
const DEFAULT_TIMEOUT_MS = 120_000;

export type TransportOptions = {
  /** The name of the calling program, put before the client's own User-Agent. */
  userAgent?: string | undefined;
  /** How long a request is retried, seconds. 0: never. */
  retryForSec?: number | undefined;
  /** How long a call may take with its retries, ms. */
  timeoutMs?: number | undefined;
};

/** The longest delay that `setTimeout` supports, 25 days. A time limit that is longer is ignored. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** `signal` is aborted when the caller's signal is, or when the time limit is over. `isDone` stops the timer. */
export type Limit = { signal: AbortSignal | undefined; isDone: () => void };

export type Query = Record<string, string | number | boolean | undefined>;

export type RequestOptions = CallOptions & {
  query?: Query | undefined;
  body?: unknown;
  /** Returns the bytes to send instead of `body`. Called again for each attempt. */
  content?: () => string | Uint8Array | AsyncIterable<Uint8Array>;
  headers?: Record<string, string>;
  /**
   * Whether the request may be sent again when its answer was lost, because sending it twice has the same effect as
   * sending it once. Default: true for every method but POST.
   */
  isRepeatable?: boolean;
  /** How long the service may wait before it answers, ms. It is added to the default time limit. */
  waitMs?: number | undefined;
  /** Whether there is only one attempt, because `content` can be opened only once. */
  isSentOnce?: boolean;
  /** Error codes of a 503 that prove that the service has not carried out the request. Default: none. */
  undoneCodes?: readonly string[];
};

/**
 * Called when the answer to a request was lost and its retry was refused, such as a second destroy with 404. If the
 * service has carried out the first request, this function returns the result of that request; otherwise it throws the
 * refusal.
 */
export type FindEarlierResult<T> = (refusal: SandbarError) => Promise<T>;

export class Transport {
  readonly baseUrl: string;
  /** How long a request is retried, ms. 0: never. */
  readonly retryForMs: number;
  readonly #timeoutMs: number;
  /** The header `User-Agent`. */
  readonly userAgent: string;
  readonly #apiKey: string;
  #hasContact = false;

  constructor({ baseUrl, apiKey }: Settings, { userAgent, retryForSec, timeoutMs }: TransportOptions = {}) {
    this.baseUrl = baseUrl;
    this.retryForMs = (retryForSec ?? DEFAULT_RETRY_FOR_SEC) * 1000;
    this.#timeoutMs = timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#apiKey = apiKey;
    this.userAgent = userAgent === undefined ? USER_AGENT : `${userAgent} ${USER_AGENT}`;
  }

  /** The header `Authorization`. */
  get authorization(): string {
    return `Bearer ${this.#apiKey}`;
  }

  /**
   * Returns the JSON of a successful answer. Throws SandbarError, ConnectionError, TimeoutError, or the reason of an
   * aborted `signal`.
   */
  json<T>(method: string, path: string, options: RequestOptions = {}, findEarlier?: FindEarlierResult<T>): Promise<T> {
    return this.#call(
      method,
      path,
      options,
      async (response) => parseJson<T>(response, await response.text()),
      findEarlier,
    );
  }

  /** Returns the text of a successful answer. Throws as `json` does. */
  text(method: string, path: string, options: RequestOptions = {}): Promise<string> {
    return this.#call(method, path, options, (response) => response.text());
  }

  /** Sends a request whose answer has no body. Throws as `json` does. */
  run(
    method: string,
    path: string,
    options: RequestOptions = {},
    findEarlier?: FindEarlierResult<void>,
  ): Promise<void> {
    return this.#call(method, path, options, async (response) => void (await response.text()), findEarlier);
  }

  /**
   * Returns a successful answer without reading its body. Throws as `json` does. Reading the body later fails when no
   * data arrives for 60 s.
   */
  open(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    return this.#call(method, path, options, async (response) => limitSilence(response));
  }

  /** Sends the request, with retries, and reads its answer with `read`. */
  async #call<T>(
    method: string,
    path: string,
    options: RequestOptions,
    read: (response: Response) => Promise<T>,
    findEarlier?: FindEarlierResult<T>,
  ): Promise<T> {
    const { signal, isDone } = this.#deadlineOf(options);
    const attempt = async () => {
      const response = await this.#sendOnce(method, path, options, signal);
      try {
        return await read(response);
      } catch (error) {
        signal?.throwIfAborted();
        throw error instanceof SandbarError ? error : new ConnectionError(this.baseUrl, error);
      }
    };
    try {
      return await this.#retry(attempt, { ...options, signal }, options.isRepeatable ?? method !== 'POST', findEarlier);
    } finally {
      isDone();
    }
  }

  async #retry<T>(
    attempt: () => Promise<T>,
    options: RequestOptions,
    isRepeatable: boolean,
    findEarlier: FindEarlierResult<T> | undefined,
  ): Promise<T> {
    let mayBeDone = false;
    const noteOutcome = (error: unknown) => {
      if (isUnavailable(error) && !isUndone(error, options.undoneCodes)) mayBeDone = true;
      throw error;
    };
    try {
      return await retryRequest(() => attempt().catch(noteOutcome), {
        forMs: options.isSentOnce ? 0 : this.retryForMs,
        isRepeatable,
        hasContact: () => this.#hasContact,
        signal: options.signal,
      });
    } catch (error) {
      const isRefusal = error instanceof SandbarError && !isUnavailable(error);
      if (mayBeDone && isRefusal && findEarlier !== undefined) return findEarlier(error);
      throw error;
    }
  }

  /**
   * The time limit of a call that makes several requests. Such a call may take as long as a command runs, so it has a
   * limit only when `timeoutMs` is given. The caller must call `isDone` at the end of the call.
   */
  limit({ signal, timeoutMs }: CallOptions): Limit {
    return this.#limit(signal, timeoutMs ?? Number.POSITIVE_INFINITY);
  }

  /** The time limit of one request with its retries. */
  #deadlineOf({ signal, timeoutMs, content, waitMs = 0 }: RequestOptions): Limit {
    const defaultMs = content === undefined ? this.#timeoutMs + waitMs : Number.POSITIVE_INFINITY;
    return this.#limit(signal, timeoutMs ?? defaultMs);
  }

  #limit(signal: AbortSignal | undefined, limitMs: number): Limit {
    if (limitMs > LONGEST_TIMER_MS) return { signal, isDone: () => undefined };
    const clock = new AbortController();
    const timer = setTimeout(() => clock.abort(new TimeoutError(this.baseUrl, limitMs)), limitMs);
    return {
      signal: signal ? AbortSignal.any([signal, clock.signal]) : clock.signal,
      isDone: () => clearTimeout(timer),
    };
  }

  async #sendOnce(
    method: string,
    path: string,
    options: RequestOptions,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    const { query } = options;
    const url = `${this.baseUrl}${path}${queryString(query, path.includes('?') ? '&' : '?')}`;
    const headers = this.#headersOf(options);
    const content = options.content?.() ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    const response =
      typeof content === 'object' && Symbol.asyncIterator in content
        ? await platform.sendStream(url, { method, headers, signal }, content)
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
    // `Request` throws a TypeError for invalid input, such as a header with a line break. A retry would not help.
    const request = new Request(url, init);
    try {
      // The signal must not go into the `Request`: Node only holds it weakly there, so that after a garbage collection
      // an abort no longer ends the reading of the body.
      return await fetch(request, { signal: signal ?? null });
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.baseUrl, error);
    }
  }
}

/**
 * Throws SandbarError for a text that is not JSON. The text is always complete: if the connection breaks within the
 * body, reading the body fails before this function is called.
 */
function parseJson<T>(response: Response, text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    const detail = 'the answer is not JSON: is this the address of a Sandbar service?';
    const requestId = response.headers.get('x-request-id');
    throw new SandbarError({ status: response.status, code: 'unknown', detail, requestId, retryAfterSec: null });
  }
}

function queryString(query: Query = {}, joint: string): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return given.length === 0 ? '' : `${joint}${new URLSearchParams(given)}`;
}

/** Whether the service has certainly not carried out the request that failed with this error. */
function isUndone(error: unknown, undoneCodes: readonly string[] = []): boolean {
  if (error instanceof ConnectionError) return error.isUnsent;
  return error instanceof SandbarError && undoneCodes.includes(error.code);
}
