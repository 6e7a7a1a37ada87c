// A root volume that a machine is made from. The admission of the create takes it (`change` is `taking`), and from then
// on its bytes count as the machine's; when the machine runs for the first time the volume is gone, and when it never
// will, the volume is one again.
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { chargeUnchecked } from '../quotas/charge.ts';

/** Whether the machine has taken a root volume and never run from it. */
export function hasRootVolumeToReturn<T extends Pick<MachineRow, 'root_volume_id' | 'started_at'>>(
  machine: T,
): machine is T & { root_volume_id: string } {
  return machine.root_volume_id !== null && machine.started_at === null;
}

/**
 * What a root volume that was given back has become: a boot that failed may have grown it. Undefined when the machine had
 * none to return, or its host has lost it. Throws what the host refuses with.
 */
export async function sizeOfReturned(app: App, machine: MachineRow): Promise<number | undefined> {
  if (!hasRootVolumeToReturn(machine)) return undefined;
  const volumes = await app.hosts.client(machine.host_id).listVolumes();
  return volumes.find(({ volume_id }) => volume_id === machine.root_volume_id)?.size_gb;
}

/**
 * Makes the root volume of a machine that never ran an available volume again, which counts as it did before, or as what
 * it has grown to (`sizeGb`). Returns whether there was one. Runs in the transaction that ends the machine.
 */
export async function returnRootVolume(tx: Tx, machine: MachineRow, sizeGb: number | undefined): Promise<boolean> {
  if (!hasRootVolumeToReturn(machine)) return false;
  const volume = await tx
    .updateTable('volumes')
    .set({ change: null, machine_id: null, ...(sizeGb === undefined ? {} : { size_gb: sizeGb }) })
    .where('id', '=', machine.root_volume_id)
    .where('machine_id', '=', machine.id)
    .where('change', '=', 'taking')
    .returning('size_gb')
    .executeTakeFirst();
  if (!volume) return false;
  await chargeUnchecked(tx, machine.account_id, { storage_gb: volume.size_gb });
  return true;
}

/** Forgets the volume that has become the disk of a machine that runs. Runs in the transaction that records it. */
export async function forgetRootVolume(tx: Tx, machine: MachineRow): Promise<void> {
  await tx
    .deleteFrom('volumes')
    .where('id', '=', machine.root_volume_id)
    .where('machine_id', '=', machine.id)
    .where('change', '=', 'taking')
    .execute();
}
