// How long an account may be without money before the reclaimer removes what it owns, and when the account is warned.
// The time of the latest warning is stored. The last warning and the removal each come only when the warning before
// them is old enough. So even if the clock jumps ahead, or the service was down for a month, every account is warned
// twice before it loses anything.
import { sql } from 'kysely';

const DAY_MS = 86_400_000;

/** Milliseconds until the reclaimer acts: from the empty wallet, and from each of the last two warnings. */
export type Grace = { windowMs: number; weekMs: number; dayMs: number };

/**
 * The warnings come 7 days and 1 day before the reclaimer. If the window is shorter than 7 days, the first of them
 * comes at once; if it is shorter than 2 days, the second comes after half of it.
 */
export function graceOf({ reclaimDays }: { reclaimDays: number }): Grace {
  const windowMs = reclaimDays * DAY_MS;
  const weekMs = Math.min(7 * DAY_MS, windowMs);
  return { windowMs, weekMs, dayMs: Math.min(DAY_MS, weekMs / 2) };
}

/** SQL: an interval of `ms` milliseconds. */
export const interval = (ms: number) => sql<unknown>`${ms}::float8 * interval '1 millisecond'`;

/** SQL condition on `accounts`: a prepaid account without money. The index `accounts_empty` has these accounts. */
export const isOutOfMoney = sql<boolean>`(accounts.billing_mode = 'prepaid' and accounts.balance_micros <= 0)`;

/** SQL condition on `accounts`: the whole window has passed, and the last warning is at least `dayMs` old. */
export const isReclaimable = ({ windowMs, dayMs }: Grace) => sql<boolean>`(
  ${isOutOfMoney} and accounts.empty_since <= now() - ${interval(windowMs)}
  and accounts.notice = 'day' and accounts.notice_at <= now() - ${interval(dayMs)})`;
