// Deletes a snapshot, at the request of an account or for the reclaimer. The transaction that begins the delete hides
// the snapshot's row. Then the operation deletes the snapshot on the host. The host keeps the disk layers of the
// snapshot that a machine or another snapshot still uses.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { SnapshotRow } from '../db/tables.ts';
import { requestOperation } from '../operations/request.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { lockSnapshot, snapshotNotFound } from './store.ts';

/** A snapshot that is to be deleted. These columns never change. */
export type DeletableSnapshot = Pick<SnapshotRow, 'id' | 'account_id'>;

/**
 * Deletes a snapshot of the account, or joins an unfinished delete. Waits while a machine is being restored from the
 * snapshot, and while the snapshot moves to another host with its machine. Throws `not_found`; `host_unavailable` when its
 * host does not answer, and then the reconciler deletes the snapshot later.
 */
export async function deleteSnapshot(app: App, accountId: string, id: string): Promise<void> {
  const found = await app.db
    .selectFrom('snapshots')
    .select(['id', 'account_id'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where('state', '<>', 'creating')
    .executeTakeFirst();
  if (!found) throw snapshotNotFound();
  await requestOperation(app, {
    ...question(found.id),
    args: {},
    begin: (tx) => beginDeleteSnapshot(app, tx, found, 'user'),
  });
}

const question = (id: string) =>
  ({ kind: 'delete_snapshot', machine_id: null, volume_id: null, snapshot_id: id }) as const;

/**
 * Inserts an operation that deletes a snapshot, and hides the snapshot. The caller has checked that no operation on the
 * snapshot is unfinished. Throws `not_found` when the snapshot was deleted meanwhile.
 */
export async function beginDeleteSnapshot(
  app: App,
  tx: Tx,
  { id, account_id }: DeletableSnapshot,
  actor: ActivityActor,
): Promise<Claimed> {
  const found = await tx.selectFrom('snapshots').select('host_id').where('id', '=', id).executeTakeFirst();
  if (!found) throw snapshotNotFound();
  const { host_id } = found;
  // Insert the operation before locking the snapshot (see the lock order in db/transaction.ts).
  const claimed = await insertClaimed(app, tx, { ...question(id), account_id, host_id, args: '{}', actor });
  const snapshot = await lockSnapshot(tx, id);
  if (!snapshot || snapshot.state === 'deleting') throw snapshotNotFound();
  // A move locks the snapshot when it begins and when it ends.
  if (snapshot.host_id !== host_id || (await isMoving(tx, snapshot))) {
    throw new ServiceError('conflict', 'The snapshot moves to another host with its machine. Retry.', {
      retryAfterSec: 2,
    });
  }
  const scope = { accountId: account_id, hostId: host_id, actor };
  await transition(app, tx, scope, (steps) => steps.changeSnapshot(snapshot, { state: 'deleting' }));
  return claimed;
}

async function isMoving(tx: Tx, { machine_id }: Pick<SnapshotRow, 'machine_id'>): Promise<boolean> {
  const { rows } = await sql`
    select from operations where kind = 'move' and machine_id = ${machine_id} and finished_at is null`.execute(tx);
  return rows.length > 0;
}
