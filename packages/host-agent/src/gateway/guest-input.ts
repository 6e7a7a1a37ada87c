// Passes the input of a two-way stream on to the guest, and grants the agent credit for what the guest has taken.
import type { Duplex } from 'node:stream';

/** Credit is granted in pieces of at least this many bytes, so that each key press does not cost one more frame. */
const CREDIT_PIECE = 64 * 1024;

export class GuestInput {
  readonly #duplex: Duplex;
  readonly #allow: (bytes: number) => void;
  #owed = 0;

  /** `allow` grants the agent credit for `bytes` more bytes. */
  constructor(duplex: Duplex, allow: (bytes: number) => void) {
    this.#duplex = duplex;
    this.#allow = allow;
  }

  write(bytes: Buffer): void {
    // The stream may have ended while these bytes were on their way.
    if (!this.#duplex.writable) return;
    this.#duplex.write(bytes, (error) => {
      if (error) return;
      this.#owed += bytes.length;
      if (this.#owed < CREDIT_PIECE) return;
      this.#allow(this.#owed);
      this.#owed = 0;
    });
  }

  /** No more input follows. */
  end(): void {
    if (this.#duplex.writable) this.#duplex.end();
  }

  /** Cuts the stream. */
  cut(): void {
    this.#duplex.destroy();
  }
}
