// The pages of job output that event streams send. Streams that read the same job at the same offset share one read of
// the host and one encoded page, and so keep sharing: each goes on at the end of the same page. The newest pages are kept
// for a while, within a bound, for streams that are a little behind.
import type { OutputStream } from '@sandbar/contract/exec.ts';

/** A page as it is sent. `isLast`: the stream of output ends with it. */
export type EncodedPage = {
  event: Buffer;
  nextOffset: number;
  hasBytes: boolean;
  isLast: boolean;
  /** Whether nothing was behind this page when it was read. */
  reachesEnd: boolean;
  /** How many streams took this page so far. */
  readers: number;
};

export type PageName = { execId: string; stream: OutputStream; offset: number; limit: number };
type Reading = { page: Promise<EncodedPage>; waiting: number; abort: AbortController; isRead: boolean; bytes: number };

export class SharedPages {
  readonly #keepBytes: number;
  /** In the order of their last use, the longest ago first. */
  readonly #readings = new Map<string, Reading>();
  #keptBytes = 0;

  /** `keepBytes`: how many bytes of pages are kept for later readers. */
  constructor(keepBytes: number) {
    this.#keepBytes = keepBytes;
  }

  /**
   * Returns a page that is kept or being read, or reads it by `load`. The signal of `load` is aborted when all streams
   * that wait for the page have gone. Rejects with the error of `load`, or when `signal` is aborted.
   */
  async read(
    { execId, stream, offset, limit }: PageName,
    load: (signal: AbortSignal) => Promise<Omit<EncodedPage, 'readers'>>,
    signal: AbortSignal,
  ): Promise<EncodedPage> {
    signal.throwIfAborted();
    const key = `${execId} ${stream} ${offset} ${limit}`;
    const reading = this.#readings.get(key) ?? this.#begin(key, load);
    reading.waiting++;
    const { promise: gone, reject } = Promise.withResolvers<never>();
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      const page = await Promise.race([reading.page, gone]);
      page.readers++;
      this.#keep(key, reading, page);
      return page;
    } finally {
      signal.removeEventListener('abort', onAbort);
      reading.waiting--;
      if (reading.waiting === 0 && !reading.isRead) {
        this.#forget(key, reading);
        reading.abort.abort();
      }
    }
  }

  #begin(key: string, load: (signal: AbortSignal) => Promise<Omit<EncodedPage, 'readers'>>): Reading {
    const abort = new AbortController();
    const page = load(abort.signal).then(
      (loaded) => {
        reading.isRead = true;
        // A page without bytes only says that nothing came so far. Those who wait for it share it, nobody later.
        if (!loaded.hasBytes) this.#forget(key, reading);
        return { ...loaded, readers: 0 };
      },
      (error: unknown) => {
        reading.isRead = true;
        this.#forget(key, reading);
        throw error;
      },
    );
    // Every reader may have gone before the error comes.
    page.catch(() => undefined);
    const reading: Reading = { page, waiting: 0, abort, isRead: false, bytes: 0 };
    this.#readings.set(key, reading);
    return reading;
  }

  /** Marks a page as used now, and drops the pages that were used the longest ago when too many bytes are kept. */
  #keep(key: string, reading: Reading, { event }: EncodedPage): void {
    if (this.#readings.get(key) !== reading) return;
    this.#readings.delete(key);
    this.#readings.set(key, reading);
    if (reading.bytes === 0) {
      reading.bytes = event.length;
      this.#keptBytes += event.length;
    }
    for (const [oldKey, old] of this.#readings) {
      if (this.#keptBytes <= this.#keepBytes) break;
      if (old.bytes > 0) this.#forget(oldKey, old);
    }
  }

  #forget(key: string, reading: Reading): void {
    if (this.#readings.get(key) !== reading) return;
    this.#readings.delete(key);
    this.#keptBytes -= reading.bytes;
    reading.bytes = 0;
  }
}
