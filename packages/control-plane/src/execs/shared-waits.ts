// Requests that wait for the same thing of a job share one waiting call to the host. A call and its connection take far
// more memory than a request that only waits for the answer of a call, and hundreds of requests may wait for one job.
//
// The first request begins a call with its own time limit, so a request that waits alone costs what a call costs. Later
// requests join the call:
//
//   the call ends with an answer or an error                    all its waiters get it
//   the call's time limit passes, and a waiter may wait longer  the waiter begins or joins the next call
//   a waiter's time limit passes before that of the call        it asks the host for the current state and leaves
//   a waiter's client has gone                                  it leaves; when the last one leaves, the call is aborted

export type SharedCall<T> = {
  /** Names what is waited for. Calls with the same key must have the same answer. */
  key: string;
  /** Asks the host, which answers as soon as there is something to tell, or after `waitMs` milliseconds. */
  ask(waitMs: number, signal: AbortSignal): Promise<T>;
  /** Whether the answer is what the waiters wait for. Otherwise the host has answered because of its time limit. */
  isOver(answer: T): boolean;
};

type Waiter<T> = { resolve(outcome: T | typeof LATE): void; reject(error: unknown): void; leave(): void };
type Call<T> = { waiters: Set<Waiter<T>>; endsAt: number; abort: AbortController };
type Reading<T> = { beganAt: number; answer: Promise<T> };

/** The outcome of a waiter whose time limit passes before that of the call. */
const LATE = Symbol('late');
/** A waiter whose time limit passes at most this long before that of its call waits for the call, in milliseconds. */
const NEAR_MS = 20;
/**
 * A host that answers more than this before its time limit has ended the wait by itself, perhaps because it stops. Its
 * answer is passed on, because the next call might end as early. In milliseconds.
 */
const EARLY_MS = 100;

export class SharedWaits<T> {
  readonly #closing: AbortSignal;
  readonly #calls = new Map<string, Call<T>>();
  /** The calls that do not wait, of waiters whose time limit has passed. */
  readonly #readings = new Map<string, Reading<T>>();

  /** When `closing` is aborted, all calls are. */
  constructor(closing: AbortSignal) {
    this.#closing = closing;
    closing.addEventListener('abort', () => {
      for (const { abort } of this.#calls.values()) abort.abort(closing.reason);
    });
  }

  /**
   * Returns the answer of the host as soon as it is over, or the state after `waitMs` milliseconds. Rejects with the
   * error of the call, or with the reason of `signal` when that is aborted.
   */
  async wait(shared: SharedCall<T>, waitMs: number, signal: AbortSignal): Promise<T> {
    const beganAt = performance.now();
    const deadline = beganAt + waitMs;
    for (;;) {
      signal.throwIfAborted();
      const call = this.#calls.get(shared.key) ?? this.#begin(shared, Math.ceil(deadline - performance.now()));
      const outcome = await this.#join(call, deadline, signal);
      if (outcome === LATE) return this.#askNow(shared, beganAt);
      const now = performance.now();
      if (shared.isOver(outcome) || now >= deadline || now < call.endsAt - EARLY_MS) return outcome;
    }
  }

  #begin({ key, ask }: SharedCall<T>, waitMs: number): Call<T> {
    const call: Call<T> = { waiters: new Set(), endsAt: performance.now() + waitMs, abort: new AbortController() };
    this.#calls.set(key, call);
    call.abort.signal.addEventListener('abort', () => this.#forget(key, call));
    if (this.#closing.aborted) call.abort.abort(this.#closing.reason);
    const end = (tell: (waiter: Waiter<T>) => void) => {
      this.#forget(key, call);
      for (const waiter of call.waiters) {
        waiter.leave();
        tell(waiter);
      }
    };
    ask(waitMs, call.abort.signal).then(
      (answer) => end((waiter) => waiter.resolve(answer)),
      (error: unknown) => end((waiter) => waiter.reject(error)),
    );
    return call;
  }

  #join(call: Call<T>, deadline: number, signal: AbortSignal): Promise<T | typeof LATE> {
    const { promise, resolve, reject } = Promise.withResolvers<T | typeof LATE>();
    const go = (tell: () => void) => {
      waiter.leave();
      tell();
      if (call.waiters.size === 0) call.abort.abort();
    };
    const onAbort = () => go(() => reject(signal.reason));
    const timer =
      deadline < call.endsAt - NEAR_MS
        ? setTimeout(() => go(() => resolve(LATE)), deadline - performance.now())
        : undefined;
    const leave = () => {
      call.waiters.delete(waiter);
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    };
    const waiter: Waiter<T> = { resolve, reject, leave };
    signal.addEventListener('abort', onAbort, { once: true });
    call.waiters.add(waiter);
    return promise;
  }

  /**
   * Asks the host without waiting. Waiters whose time limits pass together share the answer, if the host was asked
   * after their requests had arrived.
   */
  #askNow({ key, ask }: SharedCall<T>, arrivedAt: number): Promise<T> {
    const known = this.#readings.get(key);
    if (known && known.beganAt > arrivedAt) return known.answer;
    const answer = ask(0, this.#closing).finally(() => {
      if (this.#readings.get(key) === reading) this.#readings.delete(key);
    });
    const reading: Reading<T> = { beganAt: performance.now(), answer };
    this.#readings.set(key, reading);
    return answer;
  }

  #forget(key: string, call: Call<T>): void {
    if (this.#calls.get(key) === call) this.#calls.delete(key);
  }
}
