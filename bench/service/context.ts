// What a section is given, and what it gives back.
import type { Sandbar } from '@sandbar/sdk/client.ts';
import type { Sizes } from './arguments.ts';
import type { ModeService } from './bench-service.ts';
import type { Figure } from './figures.ts';
import type { References } from './references.ts';

export type Context = {
  sizes: Sizes;
  references: References;
  /** Stops the run: loops look at it between two rounds. */
  signal: AbortSignal;
  /** Takes a figure as soon as it is known. */
  report: (figure: Figure) => void;
  /** Takes a sentence for the notes under the table. */
  note: (sentence: string) => void;
};

export type Step = (service: ModeService, context: Context) => Promise<void>;

/** Repeats `round`, unless the run is stopped. */
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

/** Opens a connection where the last one was closed by silence: what is timed next is not about TCP. */
export async function keepConnected(sandbar: Sandbar): Promise<void> {
  await sandbar.account.get();
}

/** Milliseconds that `work` takes, with what it returned. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const began = performance.now();
  const result = await work();
  return { ms: performance.now() - began, result };
}
