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
