// The range of days that the page shows, in UTC as the API counts them.
import type { BillingSearch } from './billing-search.ts';

const DAY_MS = 86_400_000;
/** The API's longest range is 400 days. */
const DAYS_MAX = 400;

export const isDay = (value: unknown): value is string =>
  typeof value === 'string' && /^\d{4}-\d{2}-\d{2}$/.test(value) && !Number.isNaN(Date.parse(value));

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

export type Range = { from: string; to: string };

/** The range in the URL. Default: the last 30 days. A range that is too long loses its first days. */
export function rangeOf({ from, to }: BillingSearch, now: number): Range {
  const last = to ?? dayOf(now);
  const first = from ?? dayOf(Date.parse(last) - 29 * DAY_MS);
  const earliest = dayOf(Date.parse(last) - (DAYS_MAX - 1) * DAY_MS);
  if (first > last) return { from: last, to: last };
  if (first < earliest) return { from: earliest, to: last };
  return { from: first, to: last };
}

/** Why the page cannot show this range, and the field to correct; undefined when it can. */
export function problemOf({ from, to }: Range): { field: keyof Range; text: string } | undefined {
  if (!isDay(from)) return { field: 'from', text: 'Give a day.' };
  if (!isDay(to)) return { field: 'to', text: 'Give a day.' };
  if (from > to) return { field: 'from', text: 'The first day must not be after the last day.' };
  if (daysBetween(from, to) > DAYS_MAX) return { field: 'from', text: `A range has at most ${DAYS_MAX} days.` };
  return undefined;
}

const daysBetween = (from: string, to: string): number => (Date.parse(to) - Date.parse(from)) / DAY_MS + 1;

/** The range as the API takes it: from the beginning of the first day to the end of the last day. */
export const toQuery = ({ from, to }: Range): Range => ({
  from: `${from}T00:00:00.000Z`,
  to: new Date(Date.parse(to) + DAY_MS).toISOString(),
});

/** Every day of the range. */
export function daysOf({ from, to }: Range): string[] {
  const days: string[] = [];
  for (let ms = Date.parse(from); ms <= Date.parse(to); ms += DAY_MS) days.push(dayOf(ms));
  return days;
}
