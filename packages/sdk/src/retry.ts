// Decides which failed requests the client sends again, after which delay, and for how long.
import { setTimeout as delay } from 'node:timers/promises';
import pRetry from 'p-retry';
import { ApiError, ConnectionError } from './errors.ts';

/** The delay before the first retry, ms. It doubles with each retry up to the maximum; a random part is added. */
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
/**
 * How long a client that never got an answer tries to connect, in ms. This is longer than a restart of the service, and
 * short, so that a user with a wrong address does not wait a minute for the error.
 */
const FIRST_CONTACT_MS = 3_000;

export type RetryOptions = {
  /** How long to retry, ms, counted from the first failure. 0: never. */
  forMs: number;
  /** Whether the request may be sent again although the service may have carried out the first one. */
  isRepeatable: boolean;
  /** Whether this client ever got an answer from the service. */
  hasContact: () => boolean;
  signal: AbortSignal | undefined;
};

/**
 * Calls `attempt` and returns its result. After a 429, a 503 or a failed connection it waits and calls `attempt` again,
 * until the time is over. It waits at least as long as `Retry-After` says; if that is longer than the time left, it
 * gives up at once. Throws the last error of `attempt`, or the reason of the signal after an abort.
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

/** Whether the service could not be reached or answered 503, so that the same request may succeed later. */
export function isUnavailable(error: unknown): boolean {
  return error instanceof ConnectionError || (error instanceof ApiError && error.status === 503);
}

/** Resolves after `ms`. When the signal is aborted first, throws its reason. */
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
