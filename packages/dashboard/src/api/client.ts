// The client of the API. Paths, parameters and answers are typed by the OpenAPI document (schema.d.ts, generated).
import createClient, { type Middleware } from 'openapi-fetch';
import { noteRequest } from './connection.ts';
import type { components, paths } from './schema.d.ts';

export const api = createClient<paths>({ baseUrl: '/', credentials: 'same-origin' });

/** Statuses from 502 on mean that the service is down or cannot answer now. */
const FIRST_AWAY = 502;

/** True for no answer (0), and for answers that mean the same. */
export const isAway = (status: number): boolean => status === 0 || status >= FIRST_AWAY;

/** Tells the shell of each request whether the service answers. */
export const connectionWatch: Middleware = {
  onResponse: ({ response }) => noteRequest(!isAway(response.status)),
  onError: ({ error }) => {
    if (!(error instanceof Error && error.name === 'AbortError')) noteRequest(false);
  },
};

api.use(connectionWatch);

export type Schemas = components['schemas'];

/** An answer of the API with an error, or no answer at all (`status` 0, `code` "unreachable"). */
export class ApiProblem extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  /** Seconds after which a retry makes sense; undefined when the answer does not say. */
  readonly retryAfterSec: number | undefined;

  constructor(
    status: number,
    code: string,
    detail: string,
    requestId: string | null,
    options: ErrorOptions & { retryAfterSec?: number | undefined } = {},
  ) {
    super(detail, options);
    this.name = 'ApiProblem';
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.retryAfterSec = options.retryAfterSec;
  }
}

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** Returns the body of a successful answer. Throws ApiProblem. */
export async function unwrap<T>(request: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await request.catch(throwUnreachable);
  if (response.ok) return data as T;
  throw toProblem(response, error);
}

/** For a request without an answer. */
export function throwUnreachable(cause: unknown): never {
  throw new ApiProblem(0, 'unreachable', 'The service does not answer.', null, { cause });
}

/** The error of a refused request. `body`: what the answer says, if it is JSON. */
export function toProblem({ status, headers }: Response, body: unknown): ApiProblem {
  const { detail, code } = (typeof body === 'object' && body !== null ? body : {}) as {
    detail?: string;
    code?: string;
  };
  return new ApiProblem(
    status,
    code ?? 'unknown',
    detail ?? `The service answered with status ${status}.`,
    headers.get('x-request-id'),
    { retryAfterSec: Number(headers.get('retry-after')) || undefined },
  );
}
