// Snapshots of the hosts against their rows. A row is shown after its snapshot is safe and marked before it is removed, so
// a row without a snapshot has lost it: that is an error, taken back when it is there again. A snapshot without a row is
// what a late call or a crash left, and is removed when this database gave its id away.
import type { App } from '../app.ts';
import type { SnapshotRow } from '../db/tables.ts';
import { attempt } from './attempt.ts';
import type { Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

export const LOST_SNAPSHOT = 'The host has lost it: its files are not there any more.';

/** What earlier passes saw: rows without a snapshot, and snapshots without a row. */
export type SnapshotSightings = { lost: Sightings; unknown: Sightings };

/** Compares the snapshots of every host that answers with their rows; what fails is logged and left to a later pass. */
export async function compareSnapshots(app: App, { lost, unknown }: SnapshotSightings): Promise<void> {
  try {
    for (const hostId of app.hosts.connectedIds()) {
      await attempt(app, { host_id: hostId }, () => compareSnapshotsOf(app, hostId, { lost, unknown }));
    }
  } finally {
    lost.endPass();
    unknown.endPass();
  }
}

async function compareSnapshotsOf(app: App, hostId: string, { lost, unknown }: SnapshotSightings): Promise<void> {
  // Rows first: whatever is shown by now is on the host, unless it is marked by the time it is given up.
  const rows = await app.db.selectFrom('snapshots').selectAll().where('host_id', '=', hostId).execute();
  const snapshots = await app.hosts.client(hostId).listSnapshots();
  const present = new Set(snapshots.map((snapshot) => snapshot.snapshot_id));
  const compare = async (row: SnapshotRow) => {
    if (present.has(row.id)) await findSnapshotAgain(app, row);
    else if (row.state === 'ready' && lost.isOverdue(row.id, 0)) await loseSnapshot(app, row.id);
  };
  for (const row of rows.filter(({ state }) => state === 'ready' || state === 'error')) {
    await attempt(app, { snapshot_id: row.id }, () => compare(row));
  }
  const known = new Set(rows.map((row) => row.id));
  for (const { snapshot_id: id } of snapshots.filter((snapshot) => !known.has(snapshot.snapshot_id))) {
    const isOverdue = unknown.isOverdue(`${hostId}/${id}`, app.config.timing.unknownGraceMs);
    if (isOverdue) await attempt(app, { snapshot_id: id }, () => removeUnknownSnapshot(app, hostId, id));
  }
}

/** Records that a snapshot is gone; false when it is being deleted, or was recorded before. */
export async function loseSnapshot(app: App, id: string): Promise<boolean> {
  const result = await app.db
    .updateTable('snapshots')
    .set({ state: 'error', error: LOST_SNAPSHOT })
    .where('id', '=', id)
    .where('state', '=', 'ready')
    .executeTakeFirst();
  const isLost = result.numUpdatedRows === 1n;
  if (isLost) app.log.warn({ snapshot_id: id }, 'the host has lost a snapshot');
  return isLost;
}

/** Takes a loss back; one that was none, or is recorded as something else, stays as it is. */
export async function findSnapshotAgain(app: App, { id, error }: Pick<SnapshotRow, 'id' | 'error'>): Promise<void> {
  if (error !== LOST_SNAPSHOT) return;
  await app.db
    .updateTable('snapshots')
    .set({ state: 'ready', error: null })
    .where('id', '=', id)
    .where('error', '=', LOST_SNAPSHOT)
    .execute();
  app.log.info({ snapshot_id: id }, 'a snapshot that was lost is there again');
}

/**
 * Removes a snapshot that no account has from its host. Its row would be older than what the host has, and is asked for
 * again right before the end. Returns whether it was ours to remove: one of another database is left alone.
 */
export async function removeUnknownSnapshot(app: App, hostId: string, id: string): Promise<boolean> {
  const row = await app.db.selectFrom('snapshots').select('id').where('id', '=', id).executeTakeFirst();
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (row || !host || !isOfThisDatabase(id, host.created_at)) return false;
  await app.hosts.client(hostId).deleteSnapshot(id);
  app.log.warn({ snapshot_id: id }, 'removed a snapshot from its host that no account has');
  return true;
}
