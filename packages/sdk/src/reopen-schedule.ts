// Decides how long the client tries to open a broken stream again. The time for retries starts anew whenever the stream
// has worked in between.
import { ConnectionError } from './errors.ts';
import { sleep } from './retry.ts';

/** The wait before a broken stream is opened again, ms. */
const REOPEN_MS = 250;
/** A connection that stayed open this long counts as working, even when only heartbeats arrived, ms. */
const STABLE_MS = 5_000;

export class ReopenSchedule {
  readonly #retryForMs: number;
  readonly #now: () => number;
  #brokenSince: number | undefined;
  #openedAt: number | undefined;

  /** `now` returns the time in ms. Tests pass their own clock. */
  constructor(retryForMs: number, now = () => performance.now()) {
    this.#retryForMs = retryForMs;
    this.#now = now;
  }

  /** Notes that a connection is open. */
  noteOpen(): void {
    this.#openedAt = this.#now();
  }

  /** Notes that data has arrived. */
  noteProgress(): void {
    this.#brokenSince = undefined;
  }

  /**
   * Waits before the stream is opened again. Throws `error` when it must not be opened again: the error is not a
   * ConnectionError, or the time for retries is over. Throws the signal's reason after an abort.
   */
  async wait(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (!(error instanceof ConnectionError)) throw error;
    const now = this.#now();
    const wasStable = this.#openedAt !== undefined && now - this.#openedAt >= STABLE_MS;
    if (wasStable) this.#brokenSince = undefined;
    this.#openedAt = undefined;
    this.#brokenSince ??= now;
    if (now + REOPEN_MS > this.#brokenSince + this.#retryForMs) throw error;
    await sleep(REOPEN_MS, signal);
  }
}
