// Turns Ctrl-C, SIGTERM and a closed output pipe into an AbortSignal, so that an interrupted command can still cancel
// its job and destroy its machine.
import { constants } from 'node:os';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The abort reason of the signal that `onInterruption` returns. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
  /** The exit code of the CLI. For a signal it is the code that a shell reports, such as 130 for Ctrl-C. */
  readonly exitCode: number;

  /** `cause` is the name of a signal. For another cause, give `exitCode` too. */
  constructor(cause: string, exitCode = 128 + (signalNumbers[cause] ?? 0)) {
    super(`interrupted by ${cause}`);
    this.exitCode = exitCode;
  }
}

const signalNumbers: Readonly<Record<string, number>> = constants.signals;

/** The controllers of all AbortSignals that `onInterruption` has returned. */
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

/** Interrupts the command as SIGINT does. Returns false if it cannot, because nothing has called `onInterruption`. */
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
