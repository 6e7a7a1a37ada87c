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

/** Runs what writes the cache folder; a full disk and a missing permission become an ImageError that says what to do. */
export async function explainDiskErrors<T>(cacheDir: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (hasErrorCode(error, 'ENOSPC', 'EDQUOT')) {
      throw new ImageError(`The disk of ${cacheDir} is full: free some space or choose another cache folder`);
    }
    if (hasErrorCode(error, 'EACCES', 'EROFS')) {
      throw new ImageError(
        `Cannot write ${cacheDir}: choose a cache folder that this account may write (${String(error)})`,
      );
    }
    throw error;
  }
}
