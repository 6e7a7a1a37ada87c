// Computes medians and percentiles of measured times, and formats them.

/**
 * The percentile `share` (0 to 1) of the values by the nearest-rank method, such as 0.95 for p95. NaN without values.
 */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))] ?? Number.NaN;
}

/** Formats values as `median 41.0 (p95 55.0, max 60.0, n 50)`, in their own unit. */
export function summarize(values: readonly number[]): string {
  const [median, p95, max] = [percentile(values, 0.5), percentile(values, 0.95), Math.max(...values)];
  return `median ${median.toFixed(1)} (p95 ${p95.toFixed(1)}, max ${max.toFixed(1)}, n ${values.length})`;
}

/** Runs `work` `rounds` times, one after the other, and returns the milliseconds that each run took. */
export async function measure(rounds: number, work: (round: number) => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await work(round);
    times.push(performance.now() - start);
  }
  return times;
}
