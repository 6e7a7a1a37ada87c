// Counts how much output of one stream the gateway may still send (see "Back-pressure" in protocol.ts).
import { OUTPUT_COST } from './protocol.ts';

export class Credit {
  #bytes: number;
  #isDropped = false;
  #wake: (() => void) | undefined;

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  get isDropped(): boolean {
    return this.#isDropped;
  }

  grant(bytes: number): void {
    this.#bytes += bytes;
    this.#wake?.();
  }

  /** The agent reads no more of the stream, so {@link take} returns 0 from now on. */
  drop(): void {
    this.#isDropped = true;
    this.#wake?.();
  }

  /**
   * Waits until there is credit for an output frame and uses it up. Returns how many bytes of output the frame may
   * have: at most `wanted`, and 0 when the stream was dropped.
   */
  async take(wanted: number): Promise<number> {
    while (this.#bytes <= OUTPUT_COST && !this.#isDropped) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    if (this.#isDropped) return 0;
    const bytes = Math.min(wanted, this.#bytes - OUTPUT_COST);
    this.#bytes -= bytes + OUTPUT_COST;
    return bytes;
  }
}
