// Runs work on the same object one piece after the other, and work on different objects side by side.

export class QueuePerId {
  /** For each id, a promise that settles when all earlier work is done. */
  readonly #queues = new Map<string, Promise<unknown>>();

  /**
   * Runs `work` when all earlier work on this id has ended, even if that failed. Returns the result of `work` or throws
   * its error.
   */
  run<T>(id: string, work: () => T | Promise<T>): Promise<T> {
    const result = (this.#queues.get(id) ?? Promise.resolve()).then(work);
    const settled = result.then(
      () => {},
      () => {},
    );
    this.#queues.set(id, settled);
    void settled.then(() => this.#queues.get(id) === settled && this.#queues.delete(id));
    return result;
  }
}
