// SQL of snapshots. Their states change in transitions/transition.ts only.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { SnapshotState } from '@sandbar/contract/snapshot.ts';
import { SNAPSHOT_STATES } from '@sandbar/contract/snapshot.ts';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import type { SnapshotRow } from '../db/tables.ts';

/** A snapshot that its account sees. */
export type VisibleSnapshot = SnapshotRow & { state: SnapshotState };

/** True for rows that their account sees: snapshots that are being made or deleted are hidden. */
export const isVisible = sql<boolean>`snapshots.state in (${sql.join(SNAPSHOT_STATES.map((state) => sql.lit(state)))})`;

/** A snapshot as its owner sees it. Throws `not_found`, the same for an absent one and another account's. */
export async function findSnapshot(db: Db | Tx, accountId: string, id: string): Promise<VisibleSnapshot> {
  const row = await db
    .selectFrom('snapshots')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where(isVisible)
    .executeTakeFirst();
  if (!row) throw snapshotNotFound();
  return row as VisibleSnapshot;
}

/** The row of a snapshot in any state, locked until the transaction ends. */
export function lockSnapshot(tx: Tx, id: string): Promise<SnapshotRow | undefined> {
  return tx.selectFrom('snapshots').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

export const snapshotNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such snapshot.');
