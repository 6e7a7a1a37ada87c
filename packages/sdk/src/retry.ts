// Which failed requests are worth sending again, when, and for how long.
import { setTimeout as delay } from 'node:timers/promises';
import pRetry from 'p-retry';
import { ApiError, ConnectionError } from './errors.ts';

/** The wait before the first retry, ms. It doubles each time up to the maximum, and a random part is added to it. */
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
/**
 * How long a client that has never reached the service tries to connect, ms: long enough for a restart of the service,
 * short enough that a wrong address is reported soon.
 */
const FIRST_CONTACT_MS = 3_000;

export type RetryOptions = {
  /** How long to retry, ms, counted from the first failure. 0: never. */
  forMs: number;
  /** Whether the request may be sent again when nobody knows whether the service carried it out. */
  isRepeatable: boolean;
  /** Whether this client ever got an answer from the service. */
  hasContact: () => boolean;
  signal: AbortSignal | undefined;
};

/**
 * Calls `attempt` until it succeeds, fails with an error that a retry cannot help, or the time is over, and then throws
 * its last error. It waits as long as `Retry-After` says, or throws at once where that is longer than the time left. An
 * abort throws the reason of the signal.
 */
export function retryRequest<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { forMs, isRepeatable, hasContact, signal } = options;
  let failedFirstAt: number | undefined;
  return pRetry(attempt, {
    retries: forMs > 0 ? Number.POSITIVE_INFINITY : 0,
    minTimeout: FIRST_DELAY_MS,
    maxTimeout: MAX_DELAY_MS,
    randomize: true,
    signal,
    shouldRetry: async ({ error, retryDelay }) => {
      failedFirstAt ??= performance.now();
      if (!isTransient(error, isRepeatable)) return false;
      const limitMs = isUnsent(error) && !hasContact() ? Math.min(forMs, FIRST_CONTACT_MS) : forMs;
      const waitMs = Math.max(retryAfterMs(error), retryDelay);
      if (performance.now() + waitMs > failedFirstAt + limitMs) return false;
      // p-retry waits for `retryDelay` after this function has returned.
      await sleep(waitMs - retryDelay, signal);
      return true;
    },
  });
}

/** The service or the way to it was unavailable: nothing is wrong with the request. */
export function isUnavailable(error: unknown): boolean {
  return error instanceof ConnectionError || (error instanceof ApiError && error.status === 503);
}

/** Resolves after `ms`. Throws the reason of the signal when that is aborted first. */
export async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  if (ms <= 0) return;
  await delay(ms, undefined, { signal }).catch(() => signal?.throwIfAborted());
}

function isTransient(error: Error, isRepeatable: boolean): boolean {
  if (error instanceof ApiError) return error.status === 429 || error.status === 503;
  return error instanceof ConnectionError && (isRepeatable || error.isUnsent);
}

function isUnsent(error: Error): boolean {
  return error instanceof ConnectionError && error.isUnsent;
}

function retryAfterMs(error: Error): number {
  return error instanceof ApiError ? (error.retryAfterSec ?? 0) * 1000 : 0;
}
