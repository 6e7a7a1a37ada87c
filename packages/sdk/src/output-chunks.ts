// Pieces of the output of a job. Merges the pieces of several streams into one sequence.
import type { OutputStream } from '@sandbar/contract/exec.ts';

/** A piece of output. `offset`: the position of its first byte in its stream. */
export type OutputChunk = { stream: OutputStream; offset: number; data: Uint8Array };

/**
 * Yields the chunks of all sources as they come, and reads no source further than its next chunk. `open` gets a signal
 * that is aborted when the caller stops or one source fails, so that no source is left waiting.
 */
export async function* mergeChunks(
  open: (signal: AbortSignal) => AsyncGenerator<OutputChunk>[],
  signal: AbortSignal | undefined,
): AsyncGenerator<OutputChunk> {
  const stop = new AbortController();
  const sources = open(signal ? AbortSignal.any([signal, stop.signal]) : stop.signal);
  const next = (source: AsyncGenerator<OutputChunk>) => {
    const step = source.next().then((result) => ({ source, result }));
    // An error is thrown by the race below. It may come while the caller works on a chunk and nobody listens.
    step.catch(() => undefined);
    return step;
  };
  const waiting = new Map(sources.map((source) => [source, next(source)]));
  try {
    while (waiting.size > 0) {
      const { source, result } = await Promise.race(waiting.values());
      if (result.done) {
        waiting.delete(source);
        continue;
      }
      waiting.set(source, next(source));
      yield result.value;
    }
  } finally {
    stop.abort();
    await Promise.allSettled(waiting.values());
  }
}
