/**
 * The only error that building or reading an image throws on purpose. Its message says what is wrong and what to do,
 * because its reader is setting up a host and cannot use a stack trace.
 */
export class ImageError extends Error {
  override readonly name = 'ImageError';
}

/**
 * Whether an error carries one of the given codes, for example ENOENT. The errors of `node:fs` and `node:child_process`
 * do.
 */
export function hasErrorCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}

/**
 * Calls `run`, which writes to the cache folder. Turns a full disk or a missing permission into an ImageError with
 * advice.
 */
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
