// Merges the output of several streams of a job into one sequence of chunks.
import type { OutputStream } from '@sandbar/contract/exec.ts';

/** A piece of output. `offset`: the position of its first byte in its stream. */
export type OutputChunk = { stream: OutputStream; offset: number; data: Uint8Array };

/**
 * Yields the chunks of all sources in the order in which they arrive. It reads at most one chunk ahead from each source.
 * `open` gets a signal, which is aborted when the caller stops or one source fails, so that no source keeps waiting.
 */
export async function* mergeChunks(
  open: (signal: AbortSignal) => AsyncGenerator<OutputChunk>[],
  signal: AbortSignal | undefined,
): AsyncGenerator<OutputChunk> {
  const stop = new AbortController();
  const sources = open(signal ? AbortSignal.any([signal, stop.signal]) : stop.signal);
  const next = (source: AsyncGenerator<OutputChunk>) => {
    const step = source.next().then((result) => ({ source, result }));
    // The race below throws the error of a step. A step may fail earlier, while the caller works on a chunk; this
    // handler then prevents an unhandled rejection.
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
