// The pages of job output that event streams send. Streams that read the same job at the same offset share one read
// from the host and one encoded page. After a shared page all of them continue at the same offset, so they share the
// next page too. The newest pages are kept for a while, up to a total size, for streams that are a little behind.
import type { OutputStream } from '@sandbar/contract/exec.ts';

/** A page in the form in which it is sent. `isLast`: the job's output ends with this page. */
export type EncodedPage = {
  event: Buffer;
  nextOffset: number;
  hasBytes: boolean;
  isLast: boolean;
  /** Whether there was no further output behind this page when it was read. */
  reachesEnd: boolean;
  /** How many streams have taken this page so far. */
  readers: number;
};

export type PageName = { execId: string; stream: OutputStream; offset: number; limit: number };
type Reading = { page: Promise<EncodedPage>; waiting: number; abort: AbortController; isRead: boolean; bytes: number };

export class SharedPages {
  readonly #keepBytes: number;
  /** Ordered by last use, least recently used first. */
  readonly #readings = new Map<string, Reading>();
  #keptBytes = 0;

  /** `keepBytes`: how many bytes of pages are kept for later readers. */
  constructor(keepBytes: number) {
    this.#keepBytes = keepBytes;
  }

  /**
   * Returns a page that is kept or already being read; otherwise calls `load` to read it. The signal of `load` is
   * aborted when all streams that wait for the page are gone. Rejects with the error of `load`, or when `signal` is
   * aborted.
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
        // A page without bytes only says that there is no new output yet. It is for the streams that wait now, so
        // forget it.
        if (!loaded.hasBytes) this.#forget(key, reading);
        return { ...loaded, readers: 0 };
      },
      (error: unknown) => {
        reading.isRead = true;
        this.#forget(key, reading);
        throw error;
      },
    );
    // All waiting streams may be gone when the read fails. Then the rejection must not count as unhandled.
    page.catch(() => undefined);
    const reading: Reading = { page, waiting: 0, abort, isRead: false, bytes: 0 };
    this.#readings.set(key, reading);
    return reading;
  }

  /** Marks a page as used now. When too many bytes are kept, drops the least recently used pages. */
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
