// The measured results ("figures") and the comparison with their bounds. Bounds are compared with exact values. Printed
// values are rounded up, so that a value just over its bound never looks as if it met the bound.
import { percentile } from '../statistics.ts';

export type Statistic = 'median' | 'p95' | 'max';

/**
 * The statistic `of` must be at most `atMost`, in the unit of the figure or as a multiple of the median gVisor start.
 */
export type Bound = { of: Statistic; atMost: number; in?: 'gVisor starts' };

/** Times of the reference programs, in milliseconds. They ran alternately with the measured operation. */
export type ReferenceTimes = { gvisor: number[]; restore: number[] };

export type Figure = {
  what: string;
  /** An empty string means that the figure is a count with one value. */
  unit: 'ms' | '%' | 'MB' | '';
  values: readonly number[];
  bounds?: readonly Bound[];
  references?: ReferenceTimes;
};

/** Whether a figure meets a bound; `unknown` when it has no values or no reference to compare with. */
export type Verdict = 'met' | 'missed' | 'unknown';

export function statisticOf(values: readonly number[], statistic: Statistic): number {
  if (values.length === 0) return Number.NaN;
  if (statistic === 'max') return Math.max(...values);
  return statistic === 'median' ? medianOf(values) : percentile(values, 0.95);
}

/** The median. For an even number of values it is the mean of the two in the middle. */
function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[Math.floor(sorted.length / 2)]];
  return (low + high) / 2;
}

/** The figure's statistic divided by the median of the reference; NaN without reference times. */
export function ratioTo(figure: Figure, reference: keyof ReferenceTimes, statistic: Statistic = 'median'): number {
  const times = figure.unit === 'ms' ? (figure.references?.[reference] ?? []) : [];
  return statisticOf(figure.values, statistic) / statisticOf(times, 'median');
}

export function verdictOf(figure: Figure, bound: Bound): Verdict {
  const value = bound.in === undefined ? statisticOf(figure.values, bound.of) : ratioTo(figure, 'gvisor', bound.of);
  if (Number.isNaN(value)) return 'unknown';
  return value <= bound.atMost ? 'met' : 'missed';
}

/** Formats a value rounded up to `digits` decimals, so 15.01 becomes 15.1. A dash for NaN and infinity. */
export function roundUp(value: number, digits: number): string {
  if (!Number.isFinite(value)) return '—';
  const text = value.toFixed(digits);
  if (Number(text) >= value) return text;
  return (Number(text) + 10 ** -digits).toFixed(digits);
}
