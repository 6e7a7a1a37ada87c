// Tracks positions in a terminal's output. The service numbers the bytes and sends the last 256 KiB again to a client
// that joins. This class finds the bytes that the screen does not have yet, and those that no client has received
// before.

export type Piece = {
  bytes: Uint8Array;
  /**
   * Whether a client has received these bytes before. xterm replies to queries in the output, such as for the position
   * of the cursor. Replies to replayed queries would reach the shell as if somebody had typed them.
   */
  isReplay: boolean;
};

export class OutputPosition {
  /** The number of the next byte that comes. */
  #next = 0;
  /** The number of the first byte that this page's screen does not have. Undefined before the first connection. */
  #shown: number | undefined;
  /** The number of the first byte that no client has received. */
  #seen: number;

  /**
   * `seen`: the number of the first byte that no earlier page received. Infinity: all output is a replay until
   * `allIsNew` is called.
   */
  constructor(seen: number) {
    this.#seen = seen;
  }

  /** A connection starts with the byte of this number. Returns how many bytes before it are lost. */
  start(offset: number): number {
    const shown = this.#shown ?? offset;
    this.#next = offset;
    this.#shown = Math.max(shown, offset);
    return Math.max(0, offset - shown);
  }

  /** Returns the bytes that the screen does not have yet. */
  take(data: Uint8Array): Piece[] {
    const from = this.#next;
    const to = from + data.length;
    const fresh = clamp((this.#shown ?? from) - from, data.length);
    const unseen = Math.max(fresh, clamp(this.#seen - from, data.length));
    this.#next = to;
    this.#shown = Math.max(this.#shown ?? from, to);
    this.#seen = Math.max(this.#seen, to);
    return [
      { bytes: data.subarray(fresh, unseen), isReplay: true },
      { bytes: data.subarray(unseen), isReplay: false },
    ].filter(({ bytes }) => bytes.length > 0);
  }

  /** When `seen` was Infinity: from here on, output is no replay. */
  allIsNew(): void {
    if (this.#seen === Number.POSITIVE_INFINITY) this.#seen = this.#next;
  }

  /** The number of the first byte that no client has received; undefined when that is not known. */
  get seen(): number | undefined {
    return Number.isFinite(this.#seen) ? this.#seen : undefined;
  }
}

const clamp = (value: number, most: number): number => Math.min(Math.max(value, 0), most);
