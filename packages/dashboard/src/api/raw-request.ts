// Requests whose answers are not JSON, such as the content of a file or CSV.
import { type ApiProblem, throwUnreachable, toProblem } from './client.ts';

/** Like `fetch`, but throws ApiProblem when there is no answer. */
export const request = (url: string, options: RequestInit): Promise<Response> =>
  fetch(url, options).catch(throwUnreachable);

/** The error that a refused request answered with. */
export const problemOf = async (response: Response): Promise<ApiProblem> =>
  toProblem(response, await response.json().catch(() => undefined));
