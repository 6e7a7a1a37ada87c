// Counts how often machines of each shape were requested lately. Templates are made, kept and evicted by these counts,
// so a shape that somebody requested once takes nothing from a shape that many requests use.

/** Requests older than this no longer count. */
export const DEMAND_MS = 60 * 60_000;
/** How many requests of one shape are remembered. More would not change what is kept. */
const MAX_COUNT = 100;
/** How many shapes are remembered; the ones that were not requested for the longest time are forgotten. */
const MAX_SHAPES = 10_000;

export class TemplateDemand {
  /** The times of the requests by template key, in ms, oldest first. The key that was requested last is at the end. */
  readonly #requests = new Map<string, number[]>();
  readonly #now: () => number;

  /** `now` returns ms of any clock that does not go back. */
  constructor(now: () => number) {
    this.#now = now;
  }

  note(key: string): void {
    const requests = [...this.#recent(key), this.#now()].slice(-MAX_COUNT);
    this.#requests.delete(key);
    this.#requests.set(key, requests);
    const [oldest] = this.#requests.keys();
    if (this.#requests.size > MAX_SHAPES && oldest !== undefined) this.#requests.delete(oldest);
  }

  /** How many requests of the last hour were for this shape, 100 at most. */
  count(key: string): number {
    return this.#recent(key).length;
  }

  #recent(key: string): number[] {
    const since = this.#now() - DEMAND_MS;
    return (this.#requests.get(key) ?? []).filter((at) => at >= since);
  }
}
