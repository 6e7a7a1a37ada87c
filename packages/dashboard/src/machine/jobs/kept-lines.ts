// The newest lines of an output, up to a number of lines and of characters.
import type { Line } from './line-buffer.ts';

export class KeptLines {
  /** The array changes in place; a line in it never does. */
  readonly all: Line[] = [];
  readonly #linesMost: number;
  readonly #charsMost: number;
  #chars = 0;

  constructor(linesMost: number, charsMost: number) {
    this.#linesMost = linesMost;
    this.#charsMost = charsMost;
  }

  /** Appends a line, or replaces the last line when that has the same key. */
  place(line: Line): void {
    if (this.all.at(-1)?.key === line.key) this.#chars -= lengthOf(this.all.pop());
    this.all.push(line);
    this.#chars += lengthOf(line);
  }

  /** Drops about a tenth when there is too much, because dropping a single line also moves all the others. */
  dropOldest(): void {
    const isTooMany = this.all.length > this.#linesMost;
    if (!isTooMany && this.#chars <= this.#charsMost) return;
    const least = isTooMany ? Math.ceil(this.#linesMost / 10) : 0;
    let count = 0;
    for (const line of this.all) {
      if (count >= least && this.#chars <= this.#charsMost * 0.9) break;
      this.#chars -= lengthOf(line);
      count++;
    }
    this.all.splice(0, count);
  }
}

const lengthOf = (line: Line | undefined): number => line?.spans.reduce((sum, { text }) => sum + text.length, 0) ?? 0;
