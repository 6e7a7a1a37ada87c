// SQL of volumes. A volume whose delete was accepted is absent here for everybody; only `destroy.ts` still sees it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';

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
    .where('deleting', '=', false)
    .executeTakeFirst();
  if (!row) throw volumeNotFound();
  return row;
}

export const volumeNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such volume.');
