// The create operation. The request has already inserted the machine's row (state `provisioning`) and charged the
// quota; this operation makes the host start the machine. When it fails, everything is removed: the host deletes the
// machine, the machine's row is deleted, and a root volume that the machine was to boot from becomes available again.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../../app.ts';
import type { MachineRow } from '../../db/tables.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { lockVolumesOf } from '../../volumes/store.ts';
import { act, type Definition, machineOf } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';

export const CREATE: Definition = {
  act: act(
    (app, work) => ensureOnHost(app, machineOf(work), 'running'),
    async ({ tx, steps, ...recording }, { isolation, private_ip }) => {
      const machine = machineOf(recording);
      const taken = machine.root_volume_id === null ? [] : await lockVolumesOf(tx, machine.id);
      // The machine owns the disk from now on, so the volume's row is deleted.
      for (const volume of taken) await steps.removeVolume(volume);
      return steps.changeMachine(machine, { state: 'running', error: null, isolation, private_ip });
    },
  ),
  undo: act(
    async (app, work) => {
      const machine = await bumpForUndo(app, work);
      await removeFromHost(app, machine, machine.root_volume_id ?? undefined);
      return sizeOfReturned(app, machine);
    },
    async ({ tx, steps, ...recording }, sizeGb) => {
      const machine = machineOf(recording);
      for (const volume of await lockVolumesOf(tx, machine.id)) {
        await steps.changeVolume(volume, returned(sizeGb));
      }
      // Deleting the machine's row also deletes its idempotency key (by cascade), so the client can use the key again.
      await steps.removeMachine(machine);
      return undefined;
    },
  ),
};

/**
 * The columns of a root volume that becomes available again because its machine was not created. `sizeGb`: the new size
 * of the disk in GiB, or undefined to leave the size unchanged.
 */
export const returned = (sizeGb: number | undefined) =>
  ({ state: 'available', machine_id: null, ...(sizeGb === undefined ? {} : { size_gb: sizeGb }) }) as const;

/**
 * Deletes a machine on its host. With `keepVolumeId` its root disk is kept as the volume of that id; if the host has no
 * such disk, the call succeeds and no disk is kept. Throws the host's refusal and `host_unavailable`.
 */
export async function removeFromHost(app: App, machine: MachineRow, keepVolumeId: string | undefined): Promise<void> {
  try {
    await app.hosts.client(machine.host_id).deleteMachine(machine.id, machine.generation, keepVolumeId);
  } catch (error) {
    const isLost = keepVolumeId !== undefined && error instanceof ServiceError && error.code === 'not_found';
    if (!isLost) throw error;
  }
}

/**
 * Returns the size in GiB of a root volume that becomes available again. The size may have changed, because a failed
 * boot can grow the disk. Returns undefined when the machine had no root volume, when it has run, or when the host does
 * not list the volume.
 */
export async function sizeOfReturned(app: App, machine: MachineRow): Promise<number | undefined> {
  if (machine.root_volume_id === null || machine.started_at !== null) return undefined;
  const volumes = await app.hosts.client(machine.host_id).listVolumes();
  return volumes.find(({ volume_id }) => volume_id === machine.root_volume_id)?.size_gb;
}
