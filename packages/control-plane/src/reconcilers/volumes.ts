// Disks against their rows. A row is written before its disk is made, or after it is safe, and marked before it is
// removed. So an unmarked row without a disk has lost it: that is shown as an error, and taken back when the disk is there
// again (its file system was not mounted, say). And a disk without a row, of an id that this database gave away, is garbage.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { attempt } from './attempt.ts';
import type { Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

export const LOST_DISK = 'The host has lost it: its disk is not there any more.';

/** What each pass remembers for the next one. */
export type VolumeSightings = { lost: Sightings; unknown: Sightings };

/** Compares the volumes of every host that answers with their rows; what fails is logged and left to a later pass. */
export async function compareVolumes(app: App, { lost, unknown }: VolumeSightings): Promise<void> {
  try {
    for (const hostId of app.hosts.connectedIds()) {
      await attempt(app, { host_id: hostId }, () => compareVolumesOf(app, hostId, { lost, unknown }));
    }
  } finally {
    lost.endPass();
    unknown.endPass();
  }
}

async function compareVolumesOf(app: App, hostId: string, { lost, unknown }: VolumeSightings): Promise<void> {
  // Rows first: whatever has a row by now has a disk, unless it is marked by the time it is given up.
  const rows = await app.db.selectFrom('volumes').selectAll().where('host_id', '=', hostId).execute();
  const volumes = await app.hosts.client(hostId).listVolumes();
  const present = new Set(volumes.map((volume) => volume.volume_id));
  const compare = async (row: VolumeRow) => {
    if (present.has(row.id)) await findVolumeAgain(app, row);
    else if (row.state !== 'error' && lost.isOverdue(row.id, 0)) await loseVolume(app, row.id);
  };
  const settled = rows.filter(({ state }) => state === 'available' || state === 'attached' || state === 'error');
  for (const row of settled) await attempt(app, { volume_id: row.id }, () => compare(row));
  const known = new Set(rows.map((row) => row.id));
  for (const { volume_id: id } of volumes) {
    if (known.has(id) || !unknown.isOverdue(`${hostId}/${id}`, app.config.timing.unknownGraceMs)) continue;
    await attempt(app, { volume_id: id }, () => removeUnknownVolume(app, hostId, id));
  }
}

/**
 * Removes a disk that no row refers to, neither a volume's nor that of a machine whose disk is to become one. One of another
 * database is left alone.
 */
export async function removeUnknownVolume(app: App, hostId: string, id: string): Promise<void> {
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (!host || !isOfThisDatabase(id, host.created_at)) return;
  // One statement: a delete that keeps a disk goes from the one row to the other in a moment.
  const { rows } = await sql`
    select from volumes where id = ${id}
    union all select from operations where args ->> 'keep_volume_id' = ${id} and finished_at is null`.execute(app.db);
  if (rows.length > 0) return;
  await app.hosts.client(hostId).deleteVolume(id);
  app.log.warn({ volume_id: id }, 'removed a disk from its host that no account has');
}

/** Records that a volume's disk is gone; false when it is being changed or deleted, or was recorded before. */
export async function loseVolume(app: App, id: string): Promise<boolean> {
  const result = await app.db
    .updateTable('volumes')
    .set({ state: 'error', error: LOST_DISK })
    .where('id', '=', id)
    .where('state', 'in', ['available', 'attached'])
    .executeTakeFirst();
  const isLost = result.numUpdatedRows === 1n;
  if (isLost) app.log.warn({ volume_id: id }, 'the host has lost a volume');
  return isLost;
}

/** Takes a loss back; one that was none, or is recorded as something else, stays as it is. */
export async function findVolumeAgain(app: App, { id, error }: Pick<VolumeRow, 'id' | 'error'>): Promise<void> {
  if (error !== LOST_DISK) return;
  await app.db
    .updateTable('volumes')
    .set({
      state: sql<VolumeRow['state']>`case when machine_id is null then 'available' else 'attached' end`,
      error: null,
    })
    .where('id', '=', id)
    .where('state', '=', 'error')
    .where('error', '=', LOST_DISK)
    .execute();
  app.log.info({ volume_id: id }, 'a volume that was lost is there again');
}
