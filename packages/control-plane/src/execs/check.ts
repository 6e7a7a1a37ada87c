// Refuses a job that Linux could not start, before the job counts toward the limit of running jobs of its machine.
import { ServiceError } from '@sandbar/contract/errors.ts';

/**
 * The longest single argument that Linux accepts, in bytes: MAX_ARG_STRLEN (see execve(2)) without the terminating null
 * byte.
 */
const ARGUMENT_BYTES_MAX = 131_071;

/** Throws `validation_error` if an item of `argv` is longer than `ARGUMENT_BYTES_MAX`. */
export function checkArgv(argv: readonly string[] = []): void {
  for (const [index, item] of argv.entries()) {
    const bytes = Buffer.byteLength(item);
    if (bytes <= ARGUMENT_BYTES_MAX) continue;
    throw new ServiceError(
      'validation_error',
      `argv/${index} is ${bytes} bytes long, and one argument may have at most ${ARGUMENT_BYTES_MAX}. ` +
        'A command may be longer, and so may stdin.',
    );
  }
}
