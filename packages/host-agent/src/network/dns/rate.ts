// Limits how often each machine may do something, with a token bucket for each machine.

export class Rate {
  readonly #perSec: number;
  readonly #burst: number;
  readonly #now: () => number;
  readonly #buckets = new Map<string, { tokens: number; at: number }>();

  /** `perSec` and `burst` apply to each owner separately. `now`: a clock in milliseconds. */
  constructor(perSec: number, burst: number, now: () => number = () => performance.now()) {
    this.#perSec = perSec;
    this.#burst = burst;
    this.#now = now;
  }

  /** How many owners have a bucket that is not full. */
  get size(): number {
    return this.#buckets.size;
  }

  /** Takes a token of `owner`. Returns false when it has none left. */
  take(owner: string): boolean {
    const now = this.#now();
    const bucket = this.#buckets.get(owner);
    // The entry moves to the end of the map, so the owners that were silent for the longest time come first.
    this.#buckets.delete(owner);
    this.#forgetFull(now);
    const tokens = bucket
      ? Math.min(this.#burst, bucket.tokens + ((now - bucket.at) * this.#perSec) / 1000)
      : this.#burst;
    const isAllowed = tokens >= 1;
    this.#buckets.set(owner, { tokens: isAllowed ? tokens - 1 : tokens, at: now });
    return isAllowed;
  }

  /** Forgets the owners whose buckets are certainly full again, because they were silent for so long. */
  #forgetFull(now: number): void {
    const fullAfterMs = (this.#burst / this.#perSec) * 1000;
    for (const [owner, { at }] of this.#buckets) {
      if (now - at < fullAfterMs) return;
      this.#buckets.delete(owner);
    }
  }
}
