// Runs commands that need the code of the service. The code is loaded only for these commands, and is missing in a CLI
// that was installed from npm.
import { toPrintable } from './print.ts';

/** The names of errors whose messages are written for people, so they are printed without a stack. */
const PLAIN = ['Problem', 'ImageError'];

/**
 * Loads code of the service with `load` and runs `work` with it. Returns the result of `work`. When the service is not
 * installed here, or `work` throws a `PLAIN` error, prints the reason, sets the exit code 1 and returns undefined.
 */
export async function withService<M, T>(load: () => Promise<M>, work: (code: M) => Promise<T>): Promise<T | undefined> {
  try {
    return await work(await load());
  } catch (error) {
    const message = explain(error);
    if (message === undefined) throw error;
    console.error(message);
    process.exitCode = 1;
    return undefined;
  }
}

function explain(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const isAbsent = 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND' && /@sandbar\/service/.test(error.message);
  if (isAbsent) {
    return 'sandbar: this command runs on the computer of the service: run it there, in the Sandbar checkout (npx sandbar)';
  }
  // The message of a failed start contains its output, so it can have several lines.
  return PLAIN.includes(error.name) ? `sandbar: ${error.message.split('\n').map(toPrintable).join('\n')}` : undefined;
}
