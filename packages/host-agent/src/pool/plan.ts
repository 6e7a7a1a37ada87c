// Decides how many clones of each shape the pool keeps ready: the largest number that was recently requested in one
// burst, within limits. Pure functions.

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
 * Returns how many clones to keep ready of each shape, by template key. When `total` does not suffice for all, the
 * baselines come first, so that no burst of odd shapes takes the clones of the default shape; then shapes with larger
 * bursts.
 */
export function planPool(demands: readonly Demand[], now: number, limits: PoolLimits): Map<string, number> {
  const plan = new Map<string, number>();
  let left = limits.total;
  const raise = (key: string, count: number) => {
    const before = plan.get(key) ?? 0;
    const target = Math.min(Math.max(count, before), limits.size, before + left);
    plan.set(key, target);
    left -= target - before;
  };
  for (const { key, baseline } of demands) raise(key, baseline);
  const bursts = demands.map(({ key, createdAt }) => ({ key, count: largestBurst(createdAt, now) }));
  for (const { key, count } of bursts.sort((a, b) => b.count - a.count)) raise(key, count);
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
