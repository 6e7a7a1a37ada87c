// Sleeping and bounded parallel work. Loops use these functions so that a shutdown can end them.

/** Waits `ms` milliseconds, or until the signal is aborted. Never throws. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/**
 * Calls `work` for every item, with at most `width` calls at the same time. The first error rejects the whole run, so a
 * `work` that may fail should catch its errors.
 */
export async function forEachBounded<T>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items[Symbol.iterator]();
  const worker = async () => {
    for (let next = queue.next(); !next.done; next = queue.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
}

/**
 * Bounds how much work is in a phase at the same time. The returned function waits for a place and resolves to a
 * function that leaves the place. A place is also left after `longestMs`, so work that hangs delays others by that time
 * at most. Leaving twice is harmless.
 */
export function createPlaces(count: number, longestMs: number): () => Promise<() => void> {
  const waiting: (() => void)[] = [];
  let free = count;
  return async () => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    let isLeft = false;
    const leave = () => {
      clearTimeout(timer);
      if (isLeft) return;
      isLeft = true;
      const next = waiting.shift();
      if (next) next();
      else free++;
    };
    const timer = setTimeout(leave, longestMs).unref();
    return leave;
  };
}
