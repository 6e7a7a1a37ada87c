// Lets event streams work without delaying other requests. Node runs all callbacks that are ready before it polls for
// new input, so if 300 streams wait for the same page, every other request would wait until all 300 have written it. So
// the work of streams is queued here. It runs in short slices, and while there are other requests, streams get only a
// share of the time. Accounts take turns, so an account with many streams does not slow down those of another account.

export type TurnBounds = {
  /** How long queued work runs in one turn of Node's event loop, in milliseconds. At least one piece of work runs. */
  sliceMs: number;
  /** The share of the time (0 to 1) that queued work gets while there are other requests. */
  share: number;
  /** How much of its share queued work can save up while it has little to do, in milliseconds of work. */
  savedMs: number;
  /**
   * The most that is charged for one slice, in milliseconds. If a slice takes longer, something else paused the
   * process, for example a garbage collection.
   */
  chargeMaxMs: number;
};

type Work = () => void;

export class Turns {
  readonly #bounds: TurnBounds;
  readonly #hasOthers: () => boolean;
  /** The queue of each account that has work, in the order of their next turns. */
  readonly #queues = new Map<string, Work[]>();
  /** Until this time (of `performance.now()`), queued work waits for other requests, because its share is used up. */
  #paidUntil = 0;
  #isScheduled = false;

  /** `hasOthers`: whether there are other requests now. Without any, queued work may use all of the time. */
  constructor(bounds: TurnBounds, hasOthers: () => boolean) {
    this.#bounds = bounds;
    this.#hasOthers = hasOthers;
  }

  /** Queues `work` of an account, and resolves or rejects with its result when it has run. */
  run<T>(accountId: string, work: () => T | Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const queued = () => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    };
    const queue = this.#queues.get(accountId);
    if (queue) queue.push(queued);
    else this.#queues.set(accountId, [queued]);
    if (!this.#isScheduled) this.#schedule();
    return promise;
  }

  /** Runs `work` at once, and counts its time like that of queued work. For work that frees memory. */
  runNow<T>(work: () => T): T {
    const began = performance.now();
    const result = work();
    this.#charge(began);
    return result;
  }

  /** Counts the time since `began` as used up, if there are other requests. */
  #charge(began: number): void {
    // Without other requests nobody was delayed, so the streams need not make up for it later.
    if (!this.#hasOthers()) return;
    const { share, savedMs, chargeMaxMs } = this.#bounds;
    const tookMs = Math.min(performance.now() - began, chargeMaxMs);
    this.#paidUntil = Math.max(this.#paidUntil, began - savedMs / share) + tookMs / share;
  }

  #schedule(): void {
    this.#isScheduled = true;
    const waitMs = this.#hasOthers() ? this.#paidUntil - performance.now() : 0;
    if (waitMs > 0) setTimeout(() => this.#runSlice(), waitMs);
    else setImmediate(() => this.#runSlice());
  }

  #runSlice(): void {
    const began = performance.now();
    do this.#takeNext()?.();
    while (this.#queues.size > 0 && performance.now() - began < this.#bounds.sliceMs);
    this.#charge(began);
    this.#isScheduled = false;
    if (this.#queues.size > 0) this.#schedule();
  }

  /** Removes and returns the next work of the account whose turn it is. The account's next turn is after all others. */
  #takeNext(): Work | undefined {
    const [first] = this.#queues;
    if (!first) return undefined;
    const [accountId, queue] = first;
    const work = queue.shift();
    this.#queues.delete(accountId);
    if (queue.length > 0) this.#queues.set(accountId, queue);
    return work;
  }
}
