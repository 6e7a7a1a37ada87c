// Limits how much of the agent's time the output of one guest takes. A guest chooses how small the pieces are in which it
// sends output, and small pieces cost the agent far more time per byte than large ones. A guest whose budget is used up
// is not read for a while. HTTP/2's flow control then makes it wait, so an honest guest that is fast loses nothing.
import { setTimeout as delay } from 'node:timers/promises';

/**
 * What the agent spends on each piece of a body, on each frame in it and on each KiB, in microseconds, with the write to
 * the disk. Measured on a busy host with two cores: 475 MB/s of frames of 64 KiB take 70 % of a core, 4.7 million frames
 * of one byte a second 60 %.
 */
const CHUNK_COST_US = 50;
const FRAME_COST_US = 0.25;
const KIB_COST_US = 1.5;
/**
 * Microseconds of work per millisecond: a fifth of a core for each guest. That is 130 MB/s of output in large frames,
 * more than a guest's port passes, or 700,000 frames of one byte a second.
 */
const RATE = 200;
/** Work that a guest which was quiet may cause at once: enough for 60 MB of output in large frames. */
const MAX_SAVED_US = 100_000;

/** The clock of a budget, in ms, and how it waits. */
export type BudgetClock = { now: () => number; wait: (ms: number) => Promise<unknown> };
const realClock: BudgetClock = { now: () => performance.now(), wait: (ms) => delay(ms, undefined, { ref: false }) };

export class WorkBudget {
  readonly #clock: BudgetClock;
  /** Work that may be done now, in microseconds. Negative: the guest has to wait until it is not. */
  #saved = MAX_SAVED_US;
  #at: number;

  constructor(clock = realClock) {
    this.#clock = clock;
    this.#at = clock.now();
  }

  /**
   * Charges the work for a chunk of `bytes` bytes with `frames` frames. Returns undefined while there is budget left, else
   * a promise that resolves when there is again.
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
