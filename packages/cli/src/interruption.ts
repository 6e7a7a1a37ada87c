// Turns Ctrl-C and SIGTERM into an AbortSignal, so that an interrupted command can still cancel its job and destroy its
// machine.
import { constants } from 'node:os';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The abort reason of the signal that `onInterruption` returns. Its message names SIGINT or SIGTERM. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
  /** The exit code that a shell reports for the signal, such as 130 for Ctrl-C. */
  readonly exitCode: number;

  constructor(signal: (typeof SIGNALS)[number]) {
    super(`interrupted by ${signal}`);
    this.exitCode = 128 + constants.signals[signal];
  }
}

/**
 * Returns an AbortSignal that is aborted on the first SIGINT, SIGTERM or SIGHUP. From this call on, these signals no longer
 * end the process, even when they are repeated.
 */
export function onInterruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of SIGNALS) process.on(signal, () => controller.abort(new Interrupted(signal)));
  return controller.signal;
}

/** Waits for `work`, but throws the interruption if that comes first. `work` itself is not stopped. */
export function unlessInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const interruption = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, interruption]);
}
