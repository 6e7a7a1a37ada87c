/**
 * What a person must mend before the service can run: the first line is one sentence that says what to do, and nothing
 * else is printed of it, no stack trace.
 */
export class Problem extends Error {
  override readonly name = 'Problem';
}

/** Narrows the errors of `node:fs`, `node:net` and `node:child_process`, which carry a code such as ENOENT. */
export function hasErrorCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
