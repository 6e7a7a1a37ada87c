// Remembers for this tab the newest credit before a visit to the payment provider, so that the page can tell after the
// return whether a credit is new.
import { newestEntries } from './queries.ts';

/**
 * The kind of ledger entry that each visit leads to, and how its reference begins. Credits by the operator have other
 * references. A card grants a bonus once for each account.
 */
const CREDIT_OF = {
  'top-up': { kind: 'top-up', reference: 'stripe:' },
  card: { kind: 'bonus', reference: 'card-bonus:' },
} as const;
export type Visit = keyof typeof CREDIT_OF;

async function newestCredit(visit: Visit) {
  const { kind, reference } = CREDIT_OF[visit];
  const entries = await newestEntries(kind);
  return entries.find((entry) => entry.reference?.startsWith(reference)) ?? null;
}

const keyOf = (visit: Visit) => `sandbar.before-${visit}`;
/** Without a remembered entry, for example in another browser, a credit of this age counts as new. */
const NEW_MS = 10 * 60_000;

export async function rememberBefore(visit: Visit): Promise<void> {
  const newest = await newestCredit(visit);
  sessionStorage.setItem(keyOf(visit), newest?.id ?? '');
}

/** Returns the credit that was booked since the visit began; null while there is none. */
export async function creditSince(visit: Visit) {
  const newest = await newestCredit(visit);
  if (!newest) return null;
  const before = sessionStorage.getItem(keyOf(visit));
  const isNew = before === null ? Date.parse(newest.created_at) > Date.now() - NEW_MS : newest.id !== before;
  return isNew ? newest : null;
}
