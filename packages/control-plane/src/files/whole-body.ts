// Passes the bytes of a machine's stream on to a client, and ends only if they are complete. The length and the result
// of the stream come from a guest that may lie, so the last piece waits for the result: a client that got everything
// that was announced knows that the guest confirmed it, and any other client sees its connection break.
import { Transform, type TransformCallback } from 'node:stream';

export class WholeBody extends Transform {
  readonly #length: number | null;
  readonly #result: Promise<unknown>;
  #seen = 0;
  #held: Buffer | undefined;

  /**
   * `length`: the bytes that were announced; null if none were. `result`: settles when the guest has ended the stream.
   */
  constructor(length: number | null, result: Promise<unknown>) {
    super();
    this.#length = length;
    this.#result = result;
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#seen += chunk.length;
    if (this.#length !== null && this.#seen > this.#length) {
      done(new Error(`a machine sent more than the ${this.#length} bytes that it announced`));
      return;
    }
    const before = this.#held;
    this.#held = chunk;
    done(null, before);
  }

  override _flush(done: TransformCallback): void {
    if (this.#length !== null && this.#seen < this.#length) {
      done(new Error(`a machine sent ${this.#seen} of the ${this.#length} bytes that it announced`));
      return;
    }
    this.#result.then(
      () => done(null, this.#held),
      (error: Error) => done(error),
    );
  }
}
