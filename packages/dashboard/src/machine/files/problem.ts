// Error messages for failed requests about files.
import { ApiProblem } from '../../api/client.ts';

/** The API's sentence, which names the path, and what to do about it. Returns undefined without an error. */
export function describeProblem(error: Error | null | undefined): string | undefined {
  if (!error) return undefined;
  if (!(error instanceof ApiProblem)) return error.message;
  if (error.status === 507) return `${sentence(error.message)} Delete files in the machine to make room.`;
  if (error.status === 404) return `${sentence(error.message)} It may have been moved or deleted.`;
  return sentence(error.message);
}

function sentence(text: string): string {
  const first = text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

export const isConflict = (error: Error | null): boolean => error instanceof ApiProblem && error.status === 409;
