// SQL of volumes. Their states change in transitions/transition.ts only.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import { VOLUME_STATES, type VolumeState } from '@sandbar/contract/volume.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import type { VolumeRow } from '../db/tables.ts';

/** A volume that its account sees. */
export type VisibleVolume = VolumeRow & { state: VolumeState };

/** True for rows that their account sees: volumes that are being made, taken by a machine or deleted are hidden. */
export const isVisible = sql<boolean>`volumes.state in (${sql.join(VOLUME_STATES.map((state) => sql.lit(state)))})`;

/** A volume as its owner sees it. Throws `not_found`, the same for an absent one and another account's. */
export async function findVolume(app: App, accountId: string, id: string): Promise<VisibleVolume> {
  const row = await app.db
    .selectFrom('volumes')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where(isVisible)
    .executeTakeFirst();
  if (!row) throw volumeNotFound();
  return row as VisibleVolume;
}

/** The row of a volume in any state, locked until the transaction ends. */
export function lockVolume(tx: Tx, id: string): Promise<VolumeRow | undefined> {
  return tx.selectFrom('volumes').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

/** The data volumes that are attached to a machine. */
export async function listAttachedVolumes(db: Db | Tx, machineId: string): Promise<MachineVolume[]> {
  const rows = await db
    .selectFrom('volumes')
    .select(['id', 'mount_path'])
    .where('machine_id', '=', machineId)
    .where('kind', '=', 'data')
    .execute();
  return rows.flatMap(({ id, mount_path }) => (mount_path === null ? [] : [{ volume_id: id, mount_path }]));
}

/** The rows of a machine's volumes, its root volume among them, locked in the order of their ids. */
export function lockVolumesOf(tx: Tx, machineId: string): Promise<VolumeRow[]> {
  return tx.selectFrom('volumes').selectAll().where('machine_id', '=', machineId).orderBy('id').forUpdate().execute();
}

/** The columns of a volume that leaves its machine. A volume in error stays so. */
export const freed = ({ state }: VolumeRow) =>
  ({ machine_id: null, mount_path: null, state: state === 'error' ? 'error' : 'available' }) as const;

export const volumeNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such volume.');
