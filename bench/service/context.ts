// The interface between the benchmark and its sections, and helpers that most sections use.
import type { Client } from '@sandbar/sdk/client.ts';
import type { Sizes } from './arguments.ts';
import type { ModeService } from './bench-service.ts';
import type { Figure } from './figures.ts';
import type { References } from './references.ts';

export type Context = {
  sizes: Sizes;
  references: References;
  /** Aborted when the user stops the run. Loops check it between two rounds. */
  signal: AbortSignal;
  /** Records a result as soon as it is known. */
  report: (figure: Figure) => void;
  /** Adds a sentence to the notes under the results table. */
  note: (sentence: string) => void;
};

export type Step = (service: ModeService, context: Context) => Promise<void>;

/** Runs `round` `rounds` times, one after the other. Throws as soon as the user stops the run. */
export async function repeat(
  { signal }: Context,
  rounds: number,
  round: (index: number) => Promise<void>,
): Promise<void> {
  for (let index = 0; index < rounds; index++) {
    signal.throwIfAborted();
    await round(index);
  }
}

/**
 * Opens the connection to the API again if it was closed while idle, so that the next measurement has no TCP handshake.
 */
export async function keepConnected(sandbar: Client): Promise<void> {
  await sandbar.account.get();
}

/** Runs `work`. Returns its result and the milliseconds that it took. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const began = performance.now();
  const result = await work();
  return { ms: performance.now() - began, result };
}
