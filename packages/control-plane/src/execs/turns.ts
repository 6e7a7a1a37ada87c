// Lets many streams write without delaying other requests. Node runs all callbacks that are ready before it polls for
// new input, so if 300 streams wait for the same page, every other request would wait until all 300 have written it. So
// the writes are queued here, and after each short slice of writes Node can handle other events.

export class Turns {
  readonly #sliceMs: number;
  #waiting: (() => void)[] = [];

  /** `sliceMs`: how long queued work runs in one turn of Node's event loop, in milliseconds; 0: one item a turn. */
  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
  }

  /** Queues `work`, and resolves or rejects with its result when it has run. */
  run<T>(work: () => T | Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#waiting.push(() => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    });
    if (this.#waiting.length === 1) setImmediate(() => this.#runSlice());
    return promise;
  }

  #runSlice(): void {
    const began = performance.now();
    let done = 0;
    for (const work of this.#waiting) {
      work();
      done++;
      if (performance.now() - began >= this.#sliceMs) break;
    }
    this.#waiting = this.#waiting.slice(done);
    if (this.#waiting.length > 0) setImmediate(() => this.#runSlice());
  }
}
