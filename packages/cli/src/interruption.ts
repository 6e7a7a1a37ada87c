// Turns Ctrl-C, SIGTERM and the end of the reader of the output into an AbortSignal, so that an interrupted command can
// still cancel its job and destroy its machine.
import { constants } from 'node:os';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The abort reason of the signal that `onInterruption` returns. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
  /** The exit code of the CLI: the one that a shell reports for the signal, such as 130 for Ctrl-C. */
  readonly exitCode: number;

  /** `exitCode` is for an interruption that no signal caused. */
  constructor(cause: string, exitCode = 128 + (signalNumbers[cause] ?? 0)) {
    super(`interrupted by ${cause}`);
    this.exitCode = exitCode;
  }
}

const signalNumbers: Readonly<Record<string, number>> = constants.signals;

/** Of each signal that `onInterruption` has returned. */
const controllers: AbortController[] = [];

/**
 * Returns an AbortSignal that is aborted on the first SIGINT, SIGTERM or SIGHUP, and by `interrupt`. From this call on,
 * these signals no longer end the process, even when they are repeated.
 */
export function onInterruption(): AbortSignal {
  const controller = new AbortController();
  controllers.push(controller);
  for (const signal of SIGNALS) process.on(signal, () => controller.abort(new Interrupted(signal)));
  return controller.signal;
}

/** Interrupts the command as a signal does. Returns whether it can be: whether it has called `onInterruption`. */
export function interrupt(reason: Interrupted): boolean {
  for (const controller of controllers) controller.abort(reason);
  return controllers.length > 0;
}

/** Waits for `work`, but throws the interruption if that comes first. `work` itself is not stopped. */
export function unlessInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const interruption = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, interruption]);
}
