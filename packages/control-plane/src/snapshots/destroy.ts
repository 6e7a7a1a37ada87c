// Delete: the mark on the row is the decision, and whoever sets it is the one whose delete it is. What follows may be
// repeated by anybody: the host forgets the snapshot, then one transaction forgets the row. What others stand on stays on
// the host as long as they do.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { prepare, transact } from '../db/prepared.ts';
import type { SnapshotRow } from '../db/tables.ts';
import { type Claim, lockClaimed } from '../machines/claim.ts';
import { attempt } from '../reconcilers/attempt.ts';
import { findSnapshot } from './store.ts';

const WIDTH = 8;

/**
 * Deletes a snapshot of the account. Throws `not_found`, also while it is being deleted; `conflict` while a machine goes
 * back to it; `host_unavailable` when its host does not answer, and then the reconciler finishes it.
 */
export async function deleteSnapshot(app: App, accountId: string, id: string): Promise<void> {
  const snapshot = await findSnapshot(app, accountId, id);
  if (await markDeleting(app, snapshot.id)) {
    await finishDelete(app, snapshot);
    return;
  }
  await findSnapshot(app, accountId, id);
  throw new ServiceError('conflict', 'A machine is being restored from the snapshot. Retry later.');
}

/** Finishes, on every host that answers, the deletes that a crash or a host that was away left half done. */
export async function finishSnapshotDeletes(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const snapshots = await app.db
    .selectFrom('snapshots')
    .selectAll()
    .where('change', '=', 'deleting')
    .where('host_id', 'in', connected)
    .execute();
  await forEachBounded(snapshots, WIDTH, (snapshot) =>
    attempt(app, { snapshot_id: snapshot.id }, async () => {
      if (!(await finishDelete(app, snapshot))) return;
      app.log.info({ snapshot_id: snapshot.id }, 'the reconciler finished the delete of a snapshot');
    }),
  );
}

const lockSnapshot = prepare('lock_snapshot', 'select id from snapshots where id = $1 for update');
const mark = prepare<{ id: string }>(
  'mark_snapshot_deleting',
  `update snapshots set change = 'deleting'
   where id = $1 and change is null and not exists (select from machines where restoring_snapshot_id = $1)
   returning id`,
);

/** Of several deletes at once, one gets the row; a restore that was wanted first, under the same lock, goes before. */
async function markDeleting(app: App, id: string): Promise<boolean> {
  const [, marked] = await transact(app.db, [lockSnapshot, [id]], [mark, [id]]);
  return marked.length > 0;
}

/** Whether this call was the one that finished it: the row is removed once, and told in the feed. */
async function finishDelete(app: App, { id, host_id }: SnapshotRow): Promise<boolean> {
  await app.hosts.client(host_id).deleteSnapshot(id);
  return app.db.transaction().execute(async (tx) => {
    const row = await tx
      .deleteFrom('snapshots')
      .where('id', '=', id)
      .where('change', '=', 'deleting')
      .returningAll()
      .executeTakeFirst();
    if (row) await writeActivity(tx, row.account_id, [deletedEntry(row, 'user')]);
    return row !== undefined;
  });
}

/** Removes all snapshots of a claimed machine that is being destroyed, whatever was being done to them. Throws `ClaimLost`. */
export async function deleteSnapshotsOf(app: App, claim: Claim): Promise<void> {
  const snapshots = await app.db
    .selectFrom('snapshots')
    .select('id')
    .where('machine_id', '=', claim.machine.id)
    .orderBy('id')
    .execute();
  for (const { id } of snapshots) await deleteWithMachine(app, claim, id);
}

/** One that was never shown is not told of; one whose own delete was accepted before is not counted as the machine's. */
async function deleteWithMachine(app: App, { machine, token }: Claim, id: string): Promise<void> {
  await app.hosts.client(machine.host_id).deleteSnapshot(id);
  await app.db.transaction().execute(async (tx) => {
    await lockClaimed(tx, machine.id, token);
    const row = await tx.deleteFrom('snapshots').where('id', '=', id).returningAll().executeTakeFirst();
    if (!row || row.change === 'creating') return;
    if (row.change === null) {
      await tx
        .updateTable('machines')
        .set({ snapshots_deleted: sql`snapshots_deleted + 1` })
        .where('id', '=', machine.id)
        .execute();
    }
    await writeActivity(tx, row.account_id, [deletedEntry(row, machine.desired_by)]);
  });
}

const deletedEntry = ({ id, machine_id }: SnapshotRow, actor: ActivityActor): NewActivity => ({
  action: 'snapshot.deleted',
  actor,
  machineId: machine_id,
  metadata: { snapshot_id: id },
});
