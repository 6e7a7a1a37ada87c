// Decides which failed requests the client sends again, after which delay, and for how long.
import { ConnectionError, TimeoutError } from './errors.ts';
import { SandbarError } from './service-errors.ts';

/** The delay before the first retry, ms. It doubles with each retry, and a random part is added, up to the maximum. */
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
/**
 * How long a client that never got an answer tries to connect, in ms. This is long enough for a restart of the service,
 * and short enough that a user with a wrong address soon gets the error.
 */
const FIRST_CONTACT_MS = 3_000;
/** The longest `Retry-After` that the client waits for, ms. If it is longer, the client throws the error at once. */
const RETRY_AFTER_MAX_MS = 20_000;

export type RetryOptions = {
  /** How long to retry, ms, counted from the first failure. 0: never. */
  forMs: number;
  /** Whether the request may be sent again even if the service may have carried it out already. */
  isRepeatable: boolean;
  /** Whether this client ever got an answer from the service. */
  hasContact: () => boolean;
  signal: AbortSignal | undefined;
};

/**
 * Calls `attempt` and returns its result. After a 429, a 503 or a failed connection it waits and calls `attempt` again,
 * until the time is over. It waits at least as long as `Retry-After` says; if that is longer than 20 s or the time left,
 * it gives up at once. Throws the last error of `attempt`, or the reason of the signal after an abort.
 */
export async function retryRequest<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { signal } = options;
  let failedFirstAt: number | undefined;
  for (let failures = 0; ; failures++) {
    try {
      return await attempt();
    } catch (error) {
      failedFirstAt ??= performance.now();
      const waitMs = Math.max(retryAfterMs(error), backoffMs(failures));
      if (!mayRetry(error, failedFirstAt, waitMs, options)) throw error;
      await sleep(waitMs, signal);
    }
  }
}

function mayRetry(error: unknown, failedFirstAt: number, waitMs: number, options: RetryOptions): boolean {
  const { forMs, isRepeatable, hasContact } = options;
  if (forMs <= 0 || !isTransient(error, isRepeatable) || retryAfterMs(error) > RETRY_AFTER_MAX_MS) return false;
  const limitMs = isUnsent(error) && !hasContact() ? Math.min(forMs, FIRST_CONTACT_MS) : forMs;
  return performance.now() + waitMs <= failedFirstAt + limitMs;
}

/** The wait before the next retry, ms. A random factor of 1 to 2 keeps clients from retrying at the same moment. */
function backoffMs(failures: number): number {
  return Math.min(FIRST_DELAY_MS * 2 ** Math.min(failures, 10) * (1 + Math.random()), MAX_DELAY_MS);
}

/** Whether the service could not be reached or answered 503, so that the same request may succeed later. */
export function isUnavailable(error: unknown): boolean {
  return error instanceof ConnectionError || (error instanceof SandbarError && error.status === 503);
}

/** Resolves after `ms`. When the signal is aborted first, throws its reason. */
export async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  if (ms <= 0) return;
  await new Promise<void>((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

function isTransient(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof SandbarError) return error.status === 429 || error.status === 503;
  if (error instanceof TimeoutError) return false;
  return error instanceof ConnectionError && (isRepeatable || error.isUnsent);
}

function isUnsent(error: unknown): boolean {
  return error instanceof ConnectionError && error.isUnsent;
}

function retryAfterMs(error: unknown): number {
  return error instanceof SandbarError ? (error.retryAfterSec ?? 0) * 1000 : 0;
}
