// One request: its headers, its errors. Everything else of the client says only which path and which shape.
import { type ApiError, apiErrorOf, ConnectionError } from './errors.ts';
import type { Settings } from './settings.ts';

const USER_AGENT = `sandbar-sdk-ts/0.1.0 node/${process.versions.node}`;

export type RequestOptions = {
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
};

export class Transport {
  readonly baseUrl: string;
  readonly #apiKey: string;
  readonly #userAgent: string;

  /** `userAgent` goes before the client's own, for programs that want to be known by name. */
  constructor({ baseUrl, apiKey }: Settings, userAgent?: string) {
    this.baseUrl = baseUrl;
    this.#apiKey = apiKey;
    this.#userAgent = userAgent === undefined ? USER_AGENT : `${userAgent} ${USER_AGENT}`;
  }

  /** Returns the JSON of a successful answer. Throws ApiError, ConnectionError, or what `signal` was aborted with. */
  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const response = await this.send(method, path, options);
    try {
      return (await response.json()) as T;
    } catch (error) {
      options.signal?.throwIfAborted();
      throw new ConnectionError(this.baseUrl, error);
    }
  }

  /** Returns a successful answer with its body unread. */
  async send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    const { body, headers = {}, query, signal } = options;
    const url = `${this.baseUrl}${path}${queryString(query)}`;
    const request: RequestInit = {
      method,
      headers: {
        authorization: `Bearer ${this.#apiKey}`,
        'user-agent': this.#userAgent,
        accept: 'application/json',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
    };
    if (body !== undefined) request.body = JSON.stringify(body);
    if (signal) request.signal = signal;
    let response: Response;
    try {
      response = await fetch(url, request);
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.baseUrl, error);
    }
    if (response.ok) return response;
    throw await readError(response);
  }
}

async function readError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  let body: { code?: unknown; detail?: unknown } = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    // A proxy's page, say: its status still tells something.
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

function queryString(query: RequestOptions['query'] = {}): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}
