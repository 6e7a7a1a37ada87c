// The SQL of volumes. Only transitions/transition.ts changes a volume's state.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import { VOLUME_STATES, type VolumeState } from '@sandbar/contract/volume-states.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import type { VolumeRow } from '../db/tables.ts';

/** The row of a volume that clients can see. */
export type VisibleVolume = VolumeRow & { state: VolumeState };

/**
 * SQL condition: clients can see the volume. Volumes that are being created, deleted or turned into a machine's root
 * disk are hidden.
 */
export const isVisible = sql<boolean>`volumes.state in (${sql.join(VOLUME_STATES.map((state) => sql.lit(state)))})`;

/**
 * Returns a volume of the account. Throws `not_found`, with the same text for a volume that does not exist and for a
 * volume of another account.
 */
export async function findVolume(app: App, accountId: string, id: string): Promise<VisibleVolume> {
  const row = await getVisibleVolume(app.db, accountId, id);
  if (!row) throw volumeNotFound();
  return row;
}

/** Returns a volume of the account, or undefined when clients cannot see such a volume. */
export async function getVisibleVolume(db: Db, accountId: string, id: string): Promise<VisibleVolume | undefined> {
  const row = await db
    .selectFrom('volumes')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where(isVisible)
    .executeTakeFirst();
  return row as VisibleVolume | undefined;
}

/** Returns the row of a volume in any state and locks it until the transaction ends. */
export function lockVolume(tx: Tx, id: string): Promise<VolumeRow | undefined> {
  return tx.selectFrom('volumes').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

/** Returns the rows of volumes in any state, in the order of their ids, and locks them until the transaction ends. */
export async function lockVolumes(tx: Tx, ids: readonly string[]): Promise<VolumeRow[]> {
  if (ids.length === 0) return [];
  return tx.selectFrom('volumes').selectAll().where('id', 'in', ids).orderBy('id').forUpdate().execute();
}

/** Returns the data volumes that are attached to a machine, with their mount paths. */
export async function listAttachedVolumes(db: Db | Tx, machineId: string): Promise<MachineVolume[]> {
  const rows = await db
    .selectFrom('volumes')
    .select(['id', 'mount_path'])
    .where('machine_id', '=', machineId)
    .where('kind', '=', 'data')
    .execute();
  return rows.flatMap(({ id, mount_path }) => (mount_path === null ? [] : [{ volume_id: id, mount_path }]));
}

/**
 * Returns the rows of a machine's volumes, including its root volume, and locks them. The order by id avoids deadlocks
 * between transactions that lock several volumes.
 */
export function lockVolumesOf(tx: Tx, machineId: string): Promise<VolumeRow[]> {
  return tx.selectFrom('volumes').selectAll().where('machine_id', '=', machineId).orderBy('id').forUpdate().execute();
}

/** The new columns of a volume that is detached from its machine. A volume in state `error` stays in that state. */
export const freed = ({ state }: VolumeRow) =>
  ({ machine_id: null, mount_path: null, state: state === 'error' ? 'error' : 'available' }) as const;

export const volumeNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such volume.');
