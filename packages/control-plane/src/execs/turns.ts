// Lets many streams write without delaying other requests. Node runs all that is ready before it looks for new input,
// so a page that 300 streams wait for would keep every other request waiting until all 300 have written it. Here the
// writes queue up, and after each short slice of writing Node handles what else is ready.

export class Turns {
  readonly #sliceMs: number;
  #waiting: (() => void)[] = [];

  /** `sliceMs`: how long work runs in one round of Node's event loop, milliseconds; 0: one piece of work a round. */
  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
  }

  /** Runs `work` when all work that was queued before has run, and resolves after it. Rejects with its error. */
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
