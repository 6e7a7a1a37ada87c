// The SQL of snapshots. Only transitions/transition.ts changes a snapshot's state.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { SnapshotState } from '@sandbar/contract/snapshot.ts';
import { SNAPSHOT_STATES } from '@sandbar/contract/snapshot.ts';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import type { SnapshotRow } from '../db/tables.ts';

/** The row of a snapshot that clients can see. */
export type VisibleSnapshot = SnapshotRow & { state: SnapshotState };

/** SQL condition: clients can see the snapshot. Snapshots that are being created or deleted are hidden. */
export const isVisible = sql<boolean>`snapshots.state in (${sql.join(SNAPSHOT_STATES.map((state) => sql.lit(state)))})`;

/**
 * Returns a snapshot of the account. Throws `not_found`, with the same text for a snapshot that does not exist and for
 * a snapshot of another account.
 */
export async function findSnapshot(db: Db | Tx, accountId: string, id: string): Promise<VisibleSnapshot> {
  const row = await getVisibleSnapshot(db, accountId, id);
  if (!row) throw snapshotNotFound();
  return row;
}

/** Returns a snapshot of the account, or undefined when clients cannot see such a snapshot. */
export async function getVisibleSnapshot(
  db: Db | Tx,
  accountId: string,
  id: string,
): Promise<VisibleSnapshot | undefined> {
  const row = await db
    .selectFrom('snapshots')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where(isVisible)
    .executeTakeFirst();
  return row as VisibleSnapshot | undefined;
}

/** Returns the row of a snapshot in any state and locks it until the transaction ends. */
export function lockSnapshot(tx: Tx, id: string): Promise<SnapshotRow | undefined> {
  return tx.selectFrom('snapshots').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

/** Returns the rows of a machine's snapshots in any state and locks them until the transaction ends. */
export function lockSnapshotsOf(tx: Tx, machineId: string): Promise<SnapshotRow[]> {
  return tx.selectFrom('snapshots').selectAll().where('machine_id', '=', machineId).orderBy('id').forUpdate().execute();
}

/**
 * Keeps a snapshot of the account on its host until the transaction ends. Several transactions may do that at once. Does
 * nothing when the account has no such snapshot.
 */
export async function pinSnapshot(tx: Tx, accountId: string, id: string): Promise<void> {
  const ofAccount = tx.selectFrom('snapshots').select('id').where('id', '=', id).where('account_id', '=', accountId);
  await ofAccount.forShare().execute();
}

export const snapshotNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such snapshot.');
