// SQL of volumes. What its owner does not see (one being made, taken by a machine, or whose delete was accepted) is absent
// here for everybody; only those who end these changes see it.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';

/** True for rows that their account sees. */
export const isVisible = sql<boolean>`(not deleting and (change is null or change not in ('creating', 'taking')))`;

/** What a volume counts for, from its row's first moment to its last. */
export const volumeAmounts = ({ kind, size_gb }: Pick<VolumeRow, 'kind' | 'size_gb'>): Partial<Amounts> => ({
  storage_gb: size_gb,
  ...(kind === 'data' ? { volumes: 1 } : {}),
});

/**
 * Records the kept root disk of a destroyed machine as an available volume of its account. It charges nothing. Runs in
 * the transaction that makes the machine destroyed.
 */
export async function insertKeptDisk(tx: Tx, machine: MachineRow, volumeId: string): Promise<void> {
  await tx
    .insertInto('volumes')
    .values({
      id: volumeId,
      account_id: machine.account_id,
      host_id: machine.host_id,
      kind: 'root',
      size_gb: machine.rootfs_size_gb,
      state: 'available',
      stack: machine.stack,
    })
    .execute();
}

/** A volume as its owner sees it. Throws `not_found`, the same for an absent one and another account's. */
export async function findVolume(app: App, accountId: string, id: string): Promise<VolumeRow> {
  const row = await app.db
    .selectFrom('volumes')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where(isVisible)
    .executeTakeFirst();
  if (!row) throw volumeNotFound();
  return row;
}

/** The data volumes that a machine is to have on its host; a path that another's lies below comes first. */
export async function listWantedVolumes(app: App, machineId: string): Promise<MachineVolume[]> {
  const rows = await app.db
    .selectFrom('volumes')
    .select(['id', 'mount_path'])
    .where('machine_id', '=', machineId)
    .where('kind', '=', 'data')
    .where(sql<boolean>`change is distinct from 'detaching'`)
    .orderBy(sql`mount_path collate "C"`)
    .execute();
  return rows.flatMap(({ id, mount_path }) => (mount_path === null ? [] : [{ volume_id: id, mount_path }]));
}

/**
 * Sets the data volumes of a machine free, in the transaction that makes it destroyed: whatever was being done to them is
 * over. Returns their entries for the feed; one that was not attached yet has none.
 */
export async function freeVolumes(tx: Tx, machineId: string, actor: ActivityActor): Promise<NewActivity[]> {
  const rows = await tx
    .selectFrom('volumes')
    .select(['id', 'state'])
    .where('machine_id', '=', machineId)
    .where('kind', '=', 'data')
    .orderBy('id')
    .forUpdate()
    .execute();
  if (rows.length === 0) return [];
  await tx
    .updateTable('volumes')
    .set({ ...FREE, state: freeState })
    .where(
      'id',
      'in',
      rows.map((row) => row.id),
    )
    .execute();
  return rows
    .filter((row) => row.state !== 'available')
    .map((row) => ({ action: 'volume.detached', actor, machineId, metadata: { volume_id: row.id } }));
}

/** The columns of a volume that no machine has. */
export const FREE = { machine_id: null, mount_path: null, change: null } as const;
/** One in error stays so, wherever it is. */
export const freeState = sql<VolumeRow['state']>`case when state = 'error' then 'error' else 'available' end`;

export const volumeNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such volume.');
