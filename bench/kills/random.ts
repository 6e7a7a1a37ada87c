// Random choices that a seed repeats. The order of events still differs from run to run, because processes race; but each
// client makes the same choices in the same situations, and the victims come in the same order.

export type Random = {
  /** From 0 inclusive to 1 exclusive. */
  next(): number;
  /** A whole number from `least` to `most`, both inclusive. */
  integer(least: number, most: number): number;
  /** True with this probability. */
  chance(probability: number): boolean;
  /** One of the items; undefined when there is none. */
  pick<T>(items: readonly T[]): T | undefined;
};

/** `stream` separates the choices of several users of one seed. The generator is mulberry32. */
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

/** An item by its weight; undefined when no weight is positive. */
export function pickWeighted<T>(random: Random, items: readonly (readonly [weight: number, item: T])[]): T | undefined {
  const total = items.reduce((sum, [weight]) => sum + weight, 0);
  let left = random.next() * total;
  for (const [weight, item] of items) {
    left -= weight;
    if (left < 0) return item;
  }
  return undefined;
}
