// Shows the progress of a transfer in one line on stderr, if that is a terminal. The line is removed at the end.
import { formatBytes } from './print.ts';

const DRAW_MS = 100;
const BAR_WIDTH = 24;

export class Progress {
  readonly #label: string;
  readonly #total: number | undefined;
  readonly #isShown: boolean;
  readonly #began = performance.now();
  #bytes = 0;
  #drawnAt = 0;

  /** `total`: the bytes of the whole transfer, if they are known. `isQuiet`: show nothing. */
  constructor(label: string, total: number | undefined, isQuiet = false) {
    this.#label = label;
    this.#total = total;
    this.#isShown = process.stderr.isTTY === true && !isQuiet;
  }

  /** Passes the bytes of a transfer on and counts them. */
  async *count(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    this.#bytes = 0;
    for await (const chunk of source) {
      this.#bytes += chunk.length;
      this.#draw();
      yield chunk;
    }
  }

  /** Removes the line. */
  end(): void {
    if (this.#drawnAt > 0) process.stderr.write('\r\x1b[K');
  }

  #draw(): void {
    const now = performance.now();
    if (!this.#isShown || now - this.#drawnAt < DRAW_MS) return;
    this.#drawnAt = now;
    const rate = `${formatBytes((this.#bytes * 1000) / Math.max(1, now - this.#began))}/s`;
    const line = `${this.#label}  ${this.#bar()}${formatBytes(this.#bytes)}  ${rate}`;
    process.stderr.write(`\r${line.slice(0, (process.stderr.columns ?? 80) - 1)}\x1b[K`);
  }

  #bar(): string {
    if (this.#total === undefined) return '';
    const share = this.#total === 0 ? 1 : Math.min(1, this.#bytes / this.#total);
    const done = Math.floor(share * BAR_WIDTH);
    return `[${'#'.repeat(done)}${' '.repeat(BAR_WIDTH - done)}] ${Math.floor(share * 100)} %  `;
  }
}
