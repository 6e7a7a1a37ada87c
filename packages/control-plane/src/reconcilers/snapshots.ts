// Compares the snapshots of each host with their rows. A row becomes `ready` only after the host has saved the
// snapshot, and becomes `deleting` before the host deletes it. So if a row is `ready` and the host has no snapshot, the
// snapshot is lost: the row is set to `error`, and back to `ready` if the snapshot reappears. A snapshot without a row
// was left by a crash or by a call that arrived late. It is deleted if its id belongs to this database.
import type { App } from '../app.ts';
import { removeOldCopies } from '../blobs/copies.ts';
import type { SnapshotRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { lockSnapshot } from '../snapshots/store.ts';
import { transition } from '../transitions/transition.ts';
import { attempt } from './attempt.ts';
import type { Compared, Comparison } from './rounds.ts';
import { createSightings, type Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

export const LOST_SNAPSHOT = 'The host has lost it: its files are not there any more.';

/**
 * The differences that earlier comparisons of the host saw: rows without a snapshot (`lost`) and snapshots without a
 * row (`unknown`).
 */
type SnapshotSightings = { lost: Sightings; unknown: Sightings };

/** Compares the snapshots of a host with their rows. */
export function snapshotComparison(app: App): Comparison {
  const { reconcileJobsMs, compareMs } = app.config.timing;
  return {
    name: 'snapshots',
    pauseMs: { shortest: reconcileJobsMs, longest: compareMs.others },
    begin: (hostId) => {
      const sightings = { lost: createSightings(), unknown: createSightings() };
      return () =>
        compareSnapshots(app, hostId, sightings).finally(() => {
          sightings.lost.endPass();
          sightings.unknown.endPass();
        });
    },
  };
}

/** A failure concerning one snapshot is logged. */
async function compareSnapshots(app: App, hostId: string, { lost, unknown }: SnapshotSightings): Promise<Compared> {
  // Read the rows before asking the host. A row that is `ready` now has its snapshot on the host, unless a delete
  // begins meanwhile; `loseSnapshot` checks for that.
  const rows = await app.db.selectFrom('snapshots').selectAll().where('host_id', '=', hostId).execute();
  const snapshots = await app.hosts.client(hostId).listSnapshots();
  const present = new Set(snapshots.map((snapshot) => snapshot.snapshot_id));
  let isSettled = true;
  const compare = async (row: SnapshotRow) => {
    if (present.has(row.id)) await findSnapshotAgain(app, row);
    else if (row.state === 'ready') {
      isSettled = false;
      if (lost.isOverdue(row.id, 0)) await loseSnapshot(app, row);
    }
  };
  for (const row of rows.filter(({ state }) => state === 'ready' || state === 'error')) {
    await attempt(app, { snapshot_id: row.id }, () => compare(row));
  }
  const known = new Set(rows.map((row) => row.id));
  for (const { snapshot_id: id } of snapshots.filter((snapshot) => !known.has(snapshot.snapshot_id))) {
    // A snapshot that was overdue before may belong to another database, and stays.
    if (!unknown.isOverdue(id, app.config.timing.unknownGraceMs)) isSettled = false;
    else await attempt(app, { snapshot_id: id }, () => removeUnknownSnapshot(app, hostId, id));
  }
  if (app.objects) await removeOldCopies(app, hostId);
  return { size: snapshots.length, isSettled };
}

/**
 * Sets a `ready` snapshot to `error` because its host has lost it. Returns false if the snapshot has moved to another host
 * since, or is in another state: it is being deleted, or its loss was recorded before.
 */
export async function loseSnapshot(app: App, { id, host_id }: Pick<SnapshotRow, 'id' | 'host_id'>): Promise<boolean> {
  const isStillThere = (row: SnapshotRow) => row.state === 'ready' && row.host_id === host_id;
  const isLost = await changeSnapshot(app, id, isStillThere, { state: 'error', error: LOST_SNAPSHOT });
  if (isLost) app.log.warn({ snapshot_id: id }, 'the host has lost a snapshot');
  return isLost;
}

/**
 * Sets a snapshot that was recorded as lost back to `ready`, because its host has it again. A snapshot with another
 * error is not changed.
 */
export async function findSnapshotAgain(app: App, { id, error }: Pick<SnapshotRow, 'id' | 'error'>): Promise<void> {
  if (error !== LOST_SNAPSHOT) return;
  const isStillLost = (row: SnapshotRow) => row.state === 'error' && row.error === LOST_SNAPSHOT;
  const isBack = await changeSnapshot(app, id, isStillLost, { state: 'ready', error: null });
  if (isBack) app.log.info({ snapshot_id: id }, 'a snapshot that was lost is there again');
}

/** Changes a snapshot if its locked row still meets the condition. Returns whether it did. */
function changeSnapshot(
  app: App,
  id: string,
  condition: (row: SnapshotRow) => boolean,
  to: Pick<SnapshotRow, 'state' | 'error'>,
): Promise<boolean> {
  return inTransaction(app.db, async (tx) => {
    const row = await lockSnapshot(tx, id);
    if (!row || !condition(row)) return false;
    const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:host' } as const;
    await transition(app, tx, scope, (steps) => steps.changeSnapshot(row, to));
    return true;
  });
}

/**
 * Deletes a snapshot on its host if no account has it. A snapshot's row is inserted before its host takes the snapshot,
 * and this function looks for the row again right before the delete. Returns false, and deletes nothing, if there is a
 * row or if the snapshot may belong to another database.
 */
export async function removeUnknownSnapshot(app: App, hostId: string, id: string): Promise<boolean> {
  const row = await app.db.selectFrom('snapshots').select('id').where('id', '=', id).executeTakeFirst();
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (row || !host || !isOfThisDatabase(id, host.created_at)) return false;
  await app.hosts.client(hostId).deleteSnapshot(id);
  app.log.warn({ snapshot_id: id }, 'removed a snapshot from its host that no account has');
  return true;
}
