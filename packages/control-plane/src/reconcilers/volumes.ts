// Kept disks against their rows. A row is written after its disk is safe and marked before its disk is removed, so an
// unmarked row without a disk has lost it: that is shown as an error, and taken back when the disk is there again (its
// file system was not mounted, say).
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { attempt } from './attempt.ts';
import type { Sightings } from './sightings.ts';

export const LOST_DISK = 'The host has lost it: its disk is not there any more.';

/** Compares the volumes of every host that answers with their rows; what fails is logged and left to a later pass. */
export async function compareVolumes(app: App, lost: Sightings): Promise<void> {
  try {
    for (const hostId of app.hosts.connectedIds()) {
      await attempt(app, { host_id: hostId }, () => compareVolumesOf(app, hostId, lost));
    }
  } finally {
    lost.endPass();
  }
}

async function compareVolumesOf(app: App, hostId: string, lost: Sightings): Promise<void> {
  // Rows first: whatever has a row by now has a disk, unless it is marked by the time it is given up.
  const rows = await app.db
    .selectFrom('volumes')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('deleting', '=', false)
    .execute();
  if (rows.length === 0) return;
  const volumes = await app.hosts.client(hostId).listVolumes();
  const present = new Set(volumes.map((volume) => volume.volume_id));
  const compare = async (row: VolumeRow) => {
    if (present.has(row.id)) await findVolumeAgain(app, row);
    else if (row.state !== 'error' && lost.isOverdue(row.id, 0)) await loseVolume(app, row.id);
  };
  for (const row of rows) await attempt(app, { volume_id: row.id }, () => compare(row));
}

/** Records that a volume's disk is gone; false when it is being deleted, or was recorded before. */
export async function loseVolume(app: App, id: string): Promise<boolean> {
  const result = await app.db
    .updateTable('volumes')
    .set({ state: 'error', error: LOST_DISK })
    .where('id', '=', id)
    .where('deleting', '=', false)
    .where('state', '<>', 'error')
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
    .where('error', '=', LOST_DISK)
    .execute();
  app.log.info({ volume_id: id }, 'a volume that was lost is there again');
}
