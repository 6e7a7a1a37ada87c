// Lets the requests that wait for jobs work without delaying other requests. When a job prints or ends, hundreds of
// requests are answered, and their clients send the next ones at once. So only a few of these requests work at the same
// time, and at most as many begin in one turn of Node's event loop. The others queue. Accounts take turns, so an
// account with many waiting requests does not slow down those of another account.

type Entry = () => void;

export class Gate {
  readonly #width: number;
  #inside = 0;
  /** The queue of each account, in the order of their next turns. */
  readonly #queues = new Map<string, Entry[]>();

  /** `width`: how many requests may work at the same time. */
  constructor(width: number) {
    this.#width = width;
  }

  /**
   * Runs `work` of an account, at once if there is room, and returns its result. The next queued work begins in the
   * turn of the event loop after the end of this work, because the request of this work is answered first.
   */
  async run<T>(accountId: string, work: () => T | Promise<T>): Promise<T> {
    if (this.#inside >= this.#width) await this.#queue(accountId);
    else this.#inside++;
    try {
      return await work();
    } finally {
      setImmediate(() => this.#leave());
    }
  }

  #queue(accountId: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const queue = this.#queues.get(accountId);
    if (queue) queue.push(resolve);
    else this.#queues.set(accountId, [resolve]);
    return promise;
  }

  /** Gives the place to the account whose turn it is. The account's next turn is after all others. */
  #leave(): void {
    const [first] = this.#queues;
    if (!first) {
      this.#inside--;
      return;
    }
    const [accountId, queue] = first;
    const enter = queue.shift();
    this.#queues.delete(accountId);
    if (queue.length > 0) this.#queues.set(accountId, queue);
    enter?.();
  }
}
