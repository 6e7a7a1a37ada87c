// The query string of the billing page: the range, the grouping, the filter of the ledger, and how a visit to the
// payment provider ended. Unknown or invalid parameters are dropped, so an old link still opens the page.
import type { Schemas } from '../api/client.ts';
import { LEDGER_KINDS } from './kinds.ts';
import { isDay } from './range.ts';

export type Ending = 'done' | 'cancelled';
export type BillingSearch = {
  /** The first and the last day of the range, UTC, such as 2026-01-31. */
  from?: string;
  to?: string;
  /** A key of the machines' metadata. */
  tag?: string;
  kind?: Schemas['LedgerEntry']['kind'];
  /** The ledger entry whose lines are shown. */
  entry?: string;
  'top-up'?: Ending;
  card?: Ending;
};

const isEnding = (value: unknown): value is Ending => value === 'done' || value === 'cancelled';

export function billingSearch(search: Record<string, unknown>): BillingSearch {
  const { from, to, tag, entry, card } = search;
  const topUp = search['top-up'];
  const kind = LEDGER_KINDS.find((known) => known === search.kind);
  return {
    ...(isDay(from) ? { from } : {}),
    ...(isDay(to) ? { to } : {}),
    ...(tag !== undefined && tag !== '' && typeof tag !== 'object' ? { tag: String(tag) } : {}),
    ...(kind ? { kind } : {}),
    ...(typeof entry === 'string' ? { entry } : {}),
    ...(isEnding(topUp) ? { 'top-up': topUp } : {}),
    ...(isEnding(card) ? { card } : {}),
  };
}
