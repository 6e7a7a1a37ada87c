// The parts that all fuzzers share. A fuzzer feeds made-up input to a parser of untrusted bytes until it is told to
// stop, and throws a Finding at the first input that the parser handles wrongly. Tests run each fuzzer for seconds,
// bench/fuzz.ts for minutes.

export type FuzzOptions = {
  /** Chooses all inputs. */
  seed: number;
  /** Asked between cases; the fuzzer ends when it returns true. */
  until: () => boolean;
};

export type Fuzzer = (options: FuzzOptions) => Promise<{ cases: number }>;

/** How many bytes of an input are printed. The seed and the number of the case reproduce the whole input. */
const PRINTED_BYTES = 3000;

/** An input that a parser handled wrongly. */
export class Finding extends Error {
  override readonly name = 'Finding';

  constructor(what: string, options: { seed: number; caseNumber: number; input: Buffer }) {
    const { seed, caseNumber, input } = options;
    super(
      `${what}\nseed ${seed}, case ${caseNumber}, smallest input of ${input.length} bytes begins in base64 with\n${input.toString('base64', 0, PRINTED_BYTES)}`,
    );
  }
}

/** Returns `until` for a fuzzer that runs for `seconds`. */
export function forSeconds(seconds: number): () => boolean {
  const end = performance.now() + seconds * 1000;
  return () => performance.now() >= end;
}

/** Random choices that depend only on the seed and the number of the case (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number, caseNumber: number) {
    this.#state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(caseNumber + 1, 0x85ebca6b)) >>> 0;
  }

  /** From 0 inclusive to 1 exclusive. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from 0 to `end` - 1. */
  below(end: number): number {
    return Math.floor(this.next() * end);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(items: readonly [T, ...T[]]): T {
    return items[this.below(items.length)] ?? items[0];
  }
}

/** How many smaller inputs are tried. */
const ATTEMPTS = 2000;

/**
 * Returns a smaller input that still fails: removes pieces of whole `unit`s of bytes, large ones first, where `isWrong`
 * still holds without them.
 */
export async function shrink(
  input: Buffer,
  unit: number,
  isWrong: (input: Buffer) => Promise<boolean>,
): Promise<Buffer> {
  let smallest = input;
  let attempts = 0;
  for (let units = Math.ceil(input.length / unit / 2); units >= 1; units = Math.floor(units / 2)) {
    const length = units * unit;
    for (let at = 0; at < smallest.length && attempts < ATTEMPTS; attempts++) {
      const smaller = Buffer.concat([smallest.subarray(0, at), smallest.subarray(at + length)]);
      if (await isWrong(smaller)) smallest = smaller;
      else at += length;
    }
  }
  return smallest;
}
