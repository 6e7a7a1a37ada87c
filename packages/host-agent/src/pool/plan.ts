// Decides how many clones of each shape the pool keeps ready: the largest number that was requested at once lately,
// within limits. Pure functions.

/** Requests older than this no longer count. */
export const MEMORY_OF_DEMAND_MS = 10 * 60_000;
/** Creates within this time form one burst. Preparing a few clones takes about as long. */
export const BURST_MS = 5_000;

export type Demand = {
  key: string;
  /** When machines of this shape were created, in ms, oldest first. */
  createdAt: readonly number[];
  /** Clones to keep ready even without requests. Used for the default shape. */
  baseline: number;
};

/** `size`: limit for one shape. `total`: limit for all shapes together. */
export type PoolLimits = { size: number; total: number };

/**
 * Returns how many clones to keep ready of each shape, by template key. Shapes with larger bursts come first when
 * `total` does not suffice for all.
 */
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
