// Refuses a job that no machine could run, before the job takes one of the places of its machine.
import { ServiceError } from '@sandbar/contract/errors.ts';

/** The longest argument that Linux takes, in bytes: MAX_ARG_STRLEN (execve(2)) without the null byte at its end. */
const ARGUMENT_BYTES_MAX = 131_071;

/** Throws `validation_error` for an item of `argv` that is too long for the kernel of any machine. */
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
