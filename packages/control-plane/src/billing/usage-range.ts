// Reads the time range of a usage query, and ends it where the account's use has been charged so far.
import { USAGE_DAYS_MAX, type UsageQuery } from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { readRange } from '../activity/range.ts';
import type { Tx } from '../db/database.ts';

const DAY_MS = 86_400_000;

export type UsageRange = { from: Date; to: Date };

/**
 * What a usage query needs to know of its account. `until`: how far use can be reported. `now`: by the account's clock.
 */
export type AccountUse = { balanceMicros: number; until: Date; now: Date };

/**
 * Reads the account's balance and how far its use can be reported. While a prepaid account has open meters, that is
 * `charged_until`, so that usage and ledger agree. For all other accounts it is now: a closed meter has been charged,
 * and a free one is never charged.
 */
export async function readAccountUse(tx: Tx, accountId: string): Promise<AccountUse> {
  const { rows } = await sql<AccountUse>`
    select balance_micros as "balanceMicros", clock.now,
      case when exists (
        select from meters where account_id = accounts.id and ended_at = 'infinity' and price_id <> 0
      ) then charged_until else clock.now end as until
    from accounts,
      -- After the database's clock has stepped back, the account's clock is ahead of it.
      lateral (select greatest(now(), activity_at)::timestamptz(3) as now) as clock
    where id = ${accountId}`.execute(tx);
  const [account] = rows;
  if (!account) throw new Error('The account of the caller does not exist.');
  return account;
}

/**
 * Reads `from` and `to`. The end of the range is `until` if that is earlier than `to`. Throws `validation_error` when
 * `to` is before `from`, or the range is too long.
 */
export function readUsageRange(query: Pick<UsageQuery, 'from' | 'to'>, { now, until }: AccountUse): UsageRange {
  const given = readRange(query);
  const from = given.from ?? new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth()));
  const to = given.to ?? now;
  if (from > to) {
    const defaults = 'Without from, the range begins with this month in UTC; without to, it ends now.';
    throw new ServiceError('validation_error', `to must not be before from. ${defaults}`);
  }
  if (to.getTime() - from.getTime() > USAGE_DAYS_MAX * DAY_MS) {
    throw new ServiceError('validation_error', `to must be at most ${USAGE_DAYS_MAX} days after from.`);
  }
  return { from, to: new Date(Math.max(from.getTime(), Math.min(to.getTime(), until.getTime()))) };
}

/** The instants that split a range into days in UTC: its beginning, every midnight inside of it, and its end. */
export function splitDays({ from, to }: UsageRange): Date[] {
  const instants = [from];
  const firstMidnight = (Math.floor(from.getTime() / DAY_MS) + 1) * DAY_MS;
  for (let midnight = firstMidnight; midnight < to.getTime(); midnight += DAY_MS) instants.push(new Date(midnight));
  return [...instants, to];
}
