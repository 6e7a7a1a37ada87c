// Compares the disks of volumes on each host with their rows. A row becomes visible to clients only after its disk
// exists, and is hidden before the disk is deleted. So if a row is visible and the host has no disk, the disk is lost:
// the row is set to `error`, and back when the disk reappears (its file system may not have been mounted, for example).
// A disk without a row is garbage if its id belongs to this database, and is deleted.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { transition } from '../transitions/transition.ts';
import { lockVolume } from '../volumes/store.ts';
import { attempt } from './attempt.ts';
import type { Compared, Comparison } from './rounds.ts';
import { createSightings, type Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

export const LOST_DISK = 'The host has lost it: its disk is not there any more.';

/** The differences that earlier comparisons of the host saw: rows without a disk (`lost`) and disks without a row. */
type VolumeSightings = { lost: Sightings; unknown: Sightings };

/** Compares the volumes of a host with their rows. */
export function volumeComparison(app: App): Comparison {
  const { reconcileJobsMs, compareMs } = app.config.timing;
  return {
    name: 'volumes',
    pauseMs: { shortest: reconcileJobsMs, longest: compareMs.others },
    begin: (hostId) => {
      const sightings = { lost: createSightings(), unknown: createSightings() };
      return () =>
        compareVolumes(app, hostId, sightings).finally(() => {
          sightings.lost.endPass();
          sightings.unknown.endPass();
        });
    },
  };
}

/** A failure concerning one volume is logged. */
async function compareVolumes(app: App, hostId: string, { lost, unknown }: VolumeSightings): Promise<Compared> {
  // Read the rows before asking the host. A row that is visible now has its disk on the host, unless a delete begins
  // meanwhile; `loseVolume` checks for that.
  const rows = await app.db.selectFrom('volumes').selectAll().where('host_id', '=', hostId).execute();
  const volumes = await app.hosts.client(hostId).listVolumes();
  const present = new Set(volumes.map((volume) => volume.volume_id));
  let isSettled = true;
  const compare = async (row: VolumeRow) => {
    if (present.has(row.id)) await findVolumeAgain(app, row);
    else if (row.state !== 'error') {
      isSettled = false;
      if (lost.isOverdue(row.id, 0)) await loseVolume(app, row);
    }
  };
  const settled = rows.filter(({ state }) => state === 'available' || state === 'attached' || state === 'error');
  for (const row of settled) await attempt(app, { volume_id: row.id }, () => compare(row));
  const known = new Set(rows.map((row) => row.id));
  for (const { volume_id: id } of volumes) {
    if (known.has(id)) continue;
    // A disk that was overdue before may belong to another database, and stays.
    if (!unknown.isOverdue(id, app.config.timing.unknownGraceMs)) isSettled = false;
    else await attempt(app, { volume_id: id }, () => removeUnknownVolume(app, hostId, id));
  }
  return { size: volumes.length, isSettled };
}

/**
 * Deletes a disk on its host if no row refers to it: neither a volume's row, nor an unfinished destroy operation that
 * keeps a machine's root disk as this volume. Does nothing if the disk may belong to another database.
 */
export async function removeUnknownVolume(app: App, hostId: string, id: string): Promise<void> {
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (!host || !isOfThisDatabase(id, host.created_at)) return;
  // Check both tables in one statement: when a destroy finishes, the reference moves from `operations` to `volumes` in
  // one transaction, and two statements could miss it.
  const { rows } = await sql`
    select from volumes where id = ${id}
    union all select from operations where args ->> 'keep_volume_id' = ${id} and finished_at is null`.execute(app.db);
  if (rows.length > 0) return;
  await app.hosts.client(hostId).deleteVolume(id);
  app.log.warn({ volume_id: id }, 'removed a disk from its host that no account has');
}

/**
 * Sets a volume to `error` because its host has lost its disk. Returns false if the volume is in another state: it is
 * being changed or deleted, it has moved to another host, or its loss was recorded before.
 */
export async function loseVolume(app: App, { id, host_id }: Pick<VolumeRow, 'id' | 'host_id'>): Promise<boolean> {
  const isThere = (row: VolumeRow) =>
    row.host_id === host_id && (row.state === 'available' || row.state === 'attached');
  const isLost = await changeVolume(app, id, isThere, () => ({ state: 'error', error: LOST_DISK }));
  if (isLost) app.log.warn({ volume_id: id }, 'the host has lost a volume');
  return isLost;
}

/**
 * Sets a volume that was recorded as lost back to `available` or `attached`, because its host has the disk again. A
 * volume with another error is not changed.
 */
export async function findVolumeAgain(app: App, { id, error }: Pick<VolumeRow, 'id' | 'error'>): Promise<void> {
  if (error !== LOST_DISK) return;
  const isStillLost = (row: VolumeRow) => row.state === 'error' && row.error === LOST_DISK;
  const isBack = await changeVolume(app, id, isStillLost, ({ machine_id }) => ({
    state: machine_id === null ? 'available' : 'attached',
    error: null,
  }));
  if (isBack) app.log.info({ volume_id: id }, 'a volume that was lost is there again');
}

/** Changes a volume if its locked row still meets the condition. Returns whether it did. */
function changeVolume(
  app: App,
  id: string,
  condition: (row: VolumeRow) => boolean,
  to: (row: VolumeRow) => Pick<VolumeRow, 'state' | 'error'>,
): Promise<boolean> {
  return inTransaction(app.db, async (tx) => {
    const row = await lockVolume(tx, id);
    if (!row || !condition(row)) return false;
    const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:host' } as const;
    await transition(app, tx, scope, (steps) => steps.changeVolume(row, to(row)));
    return true;
  });
}
