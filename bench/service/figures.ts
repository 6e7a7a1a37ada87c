// What a run found, and whether it keeps its bounds. Bounds are compared with the exact values, and what is printed is
// rounded away from the bound, so that a miss never looks like a hit.
import { percentile } from '../statistics.ts';

export type Statistic = 'median' | 'p95' | 'max';

/** `of` at most `atMost`: in the figure's unit, or in medians of the gVisor starts that were run in between. */
export type Bound = { of: Statistic; atMost: number; in?: 'gVisor starts' };

/** Milliseconds of the references that were run in turns with what is measured. */
export type ReferenceTimes = { gvisor: number[]; restore: number[] };

export type Figure = {
  what: string;
  /** Empty: a count, the one value. */
  unit: 'ms' | '%' | 'MB' | '';
  values: readonly number[];
  bounds?: readonly Bound[];
  references?: ReferenceTimes;
};

/** Whether a figure keeps a bound; `unknown` when there is nothing to compare. */
export type Verdict = 'met' | 'missed' | 'unknown';

export function statisticOf(values: readonly number[], statistic: Statistic): number {
  if (values.length === 0) return Number.NaN;
  if (statistic === 'max') return Math.max(...values);
  return statistic === 'median' ? medianOf(values) : percentile(values, 0.95);
}

/** Between the two in the middle where there are two, not the better one of them. */
function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[Math.floor(sorted.length / 2)]];
  return (low + high) / 2;
}

/** How many reference medians the figure's statistic is; NaN without a reference. */
export function ratioTo(figure: Figure, reference: keyof ReferenceTimes, statistic: Statistic = 'median'): number {
  const times = figure.unit === 'ms' ? (figure.references?.[reference] ?? []) : [];
  return statisticOf(figure.values, statistic) / statisticOf(times, 'median');
}

export function verdictOf(figure: Figure, bound: Bound): Verdict {
  const value = bound.in === undefined ? statisticOf(figure.values, bound.of) : ratioTo(figure, 'gvisor', bound.of);
  if (Number.isNaN(value)) return 'unknown';
  return value <= bound.atMost ? 'met' : 'missed';
}

/** Rounded up to `digits` decimals: 15.01 is never shown as 15.0. A dash for what is not known. */
export function roundUp(value: number, digits: number): string {
  if (!Number.isFinite(value)) return '—';
  const text = value.toFixed(digits);
  if (Number(text) >= value) return text;
  return (Number(text) + 10 ** -digits).toFixed(digits);
}
