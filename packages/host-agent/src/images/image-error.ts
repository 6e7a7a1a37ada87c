/**
 * The one error that building or reading an image throws: a sentence that says what is wrong and what to do, because
 * the person who reads it is setting up a host and has no stack trace to work with.
 */
export class ImageError extends Error {
  override readonly name = 'ImageError';
}

/** Narrows the errors of `node:fs` and `node:child_process`, which carry a code such as ENOENT. */
export function hasErrorCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}
