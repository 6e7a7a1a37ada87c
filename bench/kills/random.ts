// Random choices that a seed makes repeatable. The order of events still differs between runs, because processes race.
// But each client makes the same choices in the same situations, and the killed processes come in the same order.

export type Random = {
  /** From 0 inclusive to 1 exclusive. */
  next(): number;
  /** A whole number from `least` to `most`, both inclusive. */
  integer(least: number, most: number): number;
  /** True with this probability. */
  chance(probability: number): boolean;
  /** Returns one of the items, or undefined when there is none. */
  pick<T>(items: readonly T[]): T | undefined;
};

/**
 * Creates a generator (mulberry32). Users of the same seed pass different `stream` numbers, so that their choices are
 * independent.
 */
export function createRandom(seed: number, stream: number): Random {
  let state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    integer: (least, most) => least + Math.floor(next() * (most - least + 1)),
    chance: (probability) => next() < probability,
    pick: (items) => items[Math.floor(next() * items.length)],
  };
}

/** Chooses an item with a probability in proportion to its weight. Returns undefined when no weight is positive. */
export function pickWeighted<T>(random: Random, items: readonly (readonly [weight: number, item: T])[]): T | undefined {
  const total = items.reduce((sum, [weight]) => sum + weight, 0);
  let left = random.next() * total;
  for (const [weight, item] of items) {
    left -= weight;
    if (left < 0) return item;
  }
  return undefined;
}
