// The number of snapshots that an account may have. This is a limit of the service (SANDBAR_MAX_SNAPSHOTS) and not a
// quota: snapshots count in none of the five quota dimensions.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { lockAccount } from '../accounts/store.ts';
import type { Tx } from '../db/database.ts';

/**
 * Throws `quota_exceeded` if one more snapshot would exceed the limit. Locks the account's row, so that parallel
 * requests cannot exceed it together. A snapshot counts from its request until its deletion begins.
 */
export async function checkSnapshotLimit(tx: Tx, accountId: string, limit: number): Promise<void> {
  const counting = tx
    .selectFrom('snapshots')
    .select((eb) => eb.fn.countAll<number>().as('used'))
    .where('account_id', '=', accountId)
    .where('state', '<>', 'deleting');
  // PostgreSQL runs the count after the lock was taken, so it sees all snapshots that were committed before the lock.
  const [, { used }] = await Promise.all([lockAccount(tx, accountId), counting.executeTakeFirstOrThrow()]);
  if (used < limit) return;
  throw new ServiceError(
    'quota_exceeded',
    `The limit of snapshots of the account would be exceeded: used ${used}, requested 1, limit ${limit}. Delete one.`,
  );
}
