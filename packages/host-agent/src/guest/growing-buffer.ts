// Collects bytes that arrive in pieces. It takes at most twice as much memory as bytes have arrived, also when each
// piece is one byte, and copies each byte a bounded number of times.

const LEAST_CAPACITY = 64;
const NOTHING = Buffer.alloc(0);

export class GrowingBuffer {
  #buffer: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The bytes so far. Valid until the next {@link append}. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  append(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#buffer.length) {
      // Not from Node's shared pool, because a small part of the pool would keep all of it in memory.
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#length, LEAST_CAPACITY));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    piece.copy(this.#buffer, this.#length);
    this.#length = length;
  }

  /** Returns the bytes and empties this buffer. */
  take(): Buffer {
    const bytes = this.bytes;
    this.#buffer = NOTHING;
    this.#length = 0;
    return bytes;
  }
}
