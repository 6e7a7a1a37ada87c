// How many clones to keep ready of each shape: as many as were asked for at once lately, within a budget. Pure.

/** Demand older than this is forgotten. */
export const MEMORY_OF_DEMAND_MS = 10 * 60_000;
/** Creates within this time count as one burst: about as long as it takes to make a few clones ready. */
export const BURST_MS = 5_000;

export type Demand = {
  key: string;
  /** When machines of the shape were created, ms, in order. */
  createdAt: readonly number[];
  /** Kept ready though nobody asked: the shape that a create gets that does not say. */
  baseline: number;
};

/** `size`: the most of one shape; `total`: the most of all shapes together. */
export type PoolLimits = { size: number; total: number };

/** The number to keep ready by key; shapes that were asked for more come first when the total does not do. */
export function planPool(demands: readonly Demand[], now: number, limits: PoolLimits): Map<string, number> {
  const plan = new Map<string, number>();
  let left = limits.total;
  const wanted = demands
    .map(({ key, createdAt, baseline }) => ({ key, count: Math.max(baseline, largestBurst(createdAt, now)) }))
    .sort((a, b) => b.count - a.count);
  for (const { key, count } of wanted) {
    const target = Math.min(count, limits.size, left);
    plan.set(key, target);
    left -= target;
  }
  return plan;
}

function largestBurst(createdAt: readonly number[], now: number): number {
  const recent = createdAt.filter((at) => now - at <= MEMORY_OF_DEMAND_MS);
  let from = 0;
  let largest = 0;
  for (const [to, at] of recent.entries()) {
    while (at - (recent[from] ?? at) > BURST_MS) from++;
    largest = Math.max(largest, to - from + 1);
  }
  return largest;
}
