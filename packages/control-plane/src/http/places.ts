// Counts what each account has open on this replica, such as event streams, and refuses more than a maximum.
import { ServiceError } from '@sandbar/contract/errors.ts';

const RETRY_SEC = 5;

type OpenGauge = { inc(): void; dec(): void };

export class Places {
  readonly #most: number;
  readonly #what: string;
  readonly #open: OpenGauge | undefined;
  readonly #taken = new Map<string, number>();

  /**
   * `most`: the maximum for one account. `what`: what is counted, in the plural, for the error, such as `event
   * streams`. `open`: the gauge that shows how many are open on this replica.
   */
  constructor(most: number, what: string, open?: OpenGauge) {
    this.#most = most;
    this.#what = what;
    this.#open = open;
  }

  /** Takes a place and returns the function that frees it. Throws `rate_limited` when the account has none left. */
  take(accountId: string): () => void {
    const taken = this.#taken.get(accountId) ?? 0;
    if (taken >= this.#most) {
      throw new ServiceError(
        'rate_limited',
        `The account has ${taken} open ${this.#what}, which is the most. Close one, or retry in ${RETRY_SEC} s.`,
        { retryAfterSec: RETRY_SEC },
      );
    }
    this.#taken.set(accountId, taken + 1);
    this.#open?.inc();
    let isFree = false;
    return () => {
      if (isFree) return;
      isFree = true;
      this.#open?.dec();
      const left = (this.#taken.get(accountId) ?? 1) - 1;
      if (left === 0) this.#taken.delete(accountId);
      else this.#taken.set(accountId, left);
    };
  }
}
