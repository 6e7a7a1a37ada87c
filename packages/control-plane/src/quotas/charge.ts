// The only writers of an account's use. A charge locks the account's row, so of many at once exactly those that fit are
// made, and it is undone with the transaction of what it was for.
//
// Locks are taken in one order everywhere, so that no two transactions wait for each other: machine, job, account, host,
// idempotency key.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type Amounts, QUOTA_DIMENSIONS, type QuotaDimension, TIER_LIMITS } from '@sandbar/contract/quota.ts';
import { sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import { currentUse, effectiveLimits, findExcess, type LimitColumns, type UseColumns } from './limits.ts';

/** An SQL expression a dimension, for a statement that charges what it makes. */
export type AmountsInSql = Partial<Record<QuotaDimension, string>>;

/** The condition under which a locked row of `accounts`, named `account`, has room for `amounts`. */
export function fitsInSql(account: string, amounts: AmountsInSql): string {
  return Object.entries(amounts)
    .map(([dimension, amount]) => {
      const tiers = Object.entries(TIER_LIMITS).map(
        ([tier, limits]) => `when '${tier}' then ${limits[dimension as QuotaDimension]}`,
      );
      const limit = `coalesce(${account}.limit_${dimension}, case ${account}.tier ${tiers.join(' ')} end)`;
      return `${account}.used_${dimension} + ${amount} <= ${limit}`;
    })
    .join(' and ');
}

/** What to set in `accounts` for `amounts` more. */
export const chargeInSql = (amounts: AmountsInSql): string =>
  Object.entries(amounts)
    .map(([dimension, amount]) => `used_${dimension} = accounts.used_${dimension} + ${amount}`)
    .join(', ');

/** Throws `quota_exceeded` naming the first dimension in which an account has no room for `amounts`, if there is one. */
export function checkQuota(account: LimitColumns & UseColumns, amounts: Partial<Amounts>): void {
  const excess = findExcess(effectiveLimits(account), currentUse(account), amounts);
  if (!excess) return;
  const { dimension, used, requested, limit } = excess;
  throw new ServiceError(
    'quota_exceeded',
    `The quota ${dimension} of the account would be exceeded: used ${used}, requested ${requested}, limit ${limit}.`,
  );
}

/** Charges what exists already, whatever the limits say: a kept disk is never refused its place. */
export function chargeUnchecked(tx: Tx, accountId: string, amounts: Partial<Amounts>): Promise<void> {
  return addUse(tx, accountId, amounts, 1);
}

/** Gives `amounts` back. */
export function releaseQuota(tx: Tx, accountId: string, amounts: Partial<Amounts>): Promise<void> {
  return addUse(tx, accountId, amounts, -1);
}

async function addUse(tx: Tx, accountId: string, amounts: Partial<Amounts>, sign: 1 | -1): Promise<void> {
  const changes = QUOTA_DIMENSIONS.filter((dimension) => amounts[dimension]).map((dimension) => {
    const column = `used_${dimension}` as const;
    return [column, sql<number>`${sql.ref(column)} + ${sign * (amounts[dimension] ?? 0)}::int`] as const;
  });
  if (changes.length === 0) return;
  await tx.updateTable('accounts').set(Object.fromEntries(changes)).where('id', '=', accountId).execute();
}
