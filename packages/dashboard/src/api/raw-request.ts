// Requests whose answers are not JSON, such as the content of a file or CSV.
import { ApiProblem } from './client.ts';

/** Like `fetch`, but throws ApiProblem when there is no answer. */
export const request = (url: string, options: RequestInit): Promise<Response> =>
  fetch(url, options).catch((cause: unknown) => {
    throw new ApiProblem(0, 'unreachable', 'The service does not answer.', null, { cause });
  });

/** The error that a refused request answered with. */
export async function problemOf(response: Response): Promise<ApiProblem> {
  const body = (await response.json().catch(() => ({}))) as { detail?: string; code?: string };
  const detail = body.detail ?? `The service answered with status ${response.status}.`;
  return new ApiProblem(response.status, body.code ?? 'unknown', detail, response.headers.get('x-request-id'), {
    retryAfterSec: Number(response.headers.get('retry-after')) || undefined,
  });
}
