// The only writers of an account's use. A charge locks the account's row, so of many at once exactly those that fit are
// made, and it is undone with the transaction of what it was for.
//
// Locks are taken in one order everywhere, so that no two transactions wait for each other: machine, job, account, host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type Amounts, QUOTA_DIMENSIONS } from '@sandbar/contract/quota.ts';
import { sql } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { Tx } from '../db/database.ts';
import { currentUse, type Excess, effectiveLimits, findExcess } from './limits.ts';

/** Checks `amounts` against every dimension and charges them, or throws `quota_exceeded` naming the first that binds. */
export async function chargeQuota(tx: Tx, accountId: string, amounts: Partial<Amounts>): Promise<void> {
  const account = await lockAccount(tx, accountId);
  const excess = findExcess(effectiveLimits(account), currentUse(account), amounts);
  if (excess) throw quotaExceeded(excess);
  await addUse(tx, accountId, amounts, 1);
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

function quotaExceeded({ dimension, used, requested, limit }: Excess): ServiceError {
  return new ServiceError(
    'quota_exceeded',
    `The quota ${dimension} of the account would be exceeded: used ${used}, requested ${requested}, limit ${limit}.`,
  );
}
