// Finds the operations that failed, for the operator. Housekeeping removes finished operations after an hour.
import { FAILED_OPERATIONS_MAX, type FailedOperation } from '@sandbar/contract/admin.ts';
import type { Db } from '../db/database.ts';

/**
 * Operations that the service gave up or that it tries again after a failure, newest first. Left out are those that
 * another request replaced or made impossible (`conflict`): nothing is wrong with them.
 */
export async function listFailedOperations(db: Db): Promise<FailedOperation[]> {
  const rows = await db
    .selectFrom('operations as o')
    .innerJoin('accounts as a', 'a.id', 'o.account_id')
    .select(['o.id', 'o.account_id', 'a.email', 'o.host_id', 'o.machine_id', 'o.volume_id', 'o.snapshot_id'])
    .select(['o.kind', 'o.actor', 'o.attempts', 'o.error_code', 'o.last_error', 'o.created_at', 'o.finished_at'])
    .where('o.last_error', 'is not', null)
    .where('o.error_code', 'is distinct from', 'conflict')
    .orderBy('o.created_at', 'desc')
    .orderBy('o.id', 'desc')
    .limit(FAILED_OPERATIONS_MAX)
    .execute();
  return rows.map(({ error_code, last_error, created_at, finished_at, ...row }) => ({
    ...row,
    code: error_code,
    error: last_error ?? '',
    created_at: created_at.toISOString(),
    finished_at: finished_at?.toISOString() ?? null,
  }));
}
