/**
 * A fault that a person must fix before the service can run. The first line of the message is one sentence that says
 * what to do. Only the message is printed, without a stack trace.
 */
export class Problem extends Error {
  override readonly name = 'Problem';
}

/** Whether an error of Node's own modules has one of these codes, such as ENOENT. */
export function hasErrorCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
