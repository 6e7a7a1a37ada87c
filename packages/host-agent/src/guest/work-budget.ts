// Limits how much CPU time of the host the output of one guest takes. A guest may send its output in pieces as small as
// it likes, and small pieces cost the host far more time per byte than large ones. When a guest has used up its budget,
// the host stops reading from it for a while. The guest then has to wait, so a fast honest guest loses no output.
import { setTimeout as delay } from 'node:timers/promises';

/**
 * CPU time that the host spends on each chunk of a body, each frame in it and each KiB, in microseconds, including the
 * write to the disk. Measured on a busy host with two cores: 475 MB/s of frames of 64 KiB take 70 % of a core, 4.7
 * million frames of one byte a second 60 %.
 */
const CHUNK_COST_US = 50;
const FRAME_COST_US = 0.25;
const KIB_COST_US = 1.5;
/**
 * Microseconds of work per millisecond: a fifth of a core for each guest. That allows 700,000 one-byte frames a second,
 * or 130 MB/s of output in large frames. Under emulation a guest's virtio-serial port was measured to transfer 100
 * MB/s.
 */
const RATE = 200;
/** The largest budget that a quiet guest can save up: enough for 60 MB of output in large frames at once. */
const MAX_SAVED_US = 100_000;

/** The clock of a budget, in ms, and how it waits. */
export type BudgetClock = { now: () => number; wait: (ms: number) => Promise<unknown> };
const realClock: BudgetClock = { now: () => performance.now(), wait: (ms) => delay(ms, undefined, { ref: false }) };

export class WorkBudget {
  readonly #clock: BudgetClock;
  /** Work that the guest may cause now, in microseconds. While it is negative, the guest has to wait. */
  #saved = MAX_SAVED_US;
  #at: number;

  constructor(clock = realClock) {
    this.#clock = clock;
    this.#at = clock.now();
  }

  /**
   * Charges the work for a chunk of `bytes` bytes with `frames` frames. Returns undefined while there is budget left,
   * otherwise a promise that resolves when there is budget again.
   */
  spend(frames: number, bytes: number): Promise<void> | undefined {
    this.#refill();
    this.#saved -= CHUNK_COST_US + frames * FRAME_COST_US + (bytes / 1024) * KIB_COST_US;
    return this.#saved < 0 ? this.#untilThereIsMore() : undefined;
  }

  async #untilThereIsMore(): Promise<void> {
    while (this.#saved < 0) {
      await this.#clock.wait(Math.ceil(-this.#saved / RATE));
      this.#refill();
    }
  }

  #refill(): void {
    const now = this.#clock.now();
    this.#saved = Math.min(MAX_SAVED_US, this.#saved + (now - this.#at) * RATE);
    this.#at = now;
  }
}
