// Ctrl-C and SIGTERM as an AbortSignal, so that a command can still clean up after itself.
import { constants } from 'node:os';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The reason of the abort: which signal it was. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
  /** What a shell reports for it, 130 for Ctrl-C. */
  readonly exitCode: number;

  constructor(signal: (typeof SIGNALS)[number]) {
    super(`interrupted by ${signal}`);
    this.exitCode = 128 + constants.signals[signal];
  }
}

/** From now on these signals only abort what is returned, however often they come. */
export function onInterruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of SIGNALS) process.on(signal, () => controller.abort(new Interrupted(signal)));
  return controller.signal;
}

/** The value, or a throw of the interruption when that comes first; the work itself goes on. */
export function unlessInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const interruption = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, interruption]);
}
