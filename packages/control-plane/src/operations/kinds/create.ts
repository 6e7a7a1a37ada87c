// The create operation. The request has already inserted the machine's row (state `provisioning`) and charged the
// quota; this operation makes the host start the machine with its volumes. When it fails, everything is removed: the
// host deletes the machine, the machine's row is deleted, and its volumes become available again.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../../app.ts';
import { bringSource } from '../../blobs/bring.ts';
import type { Tx } from '../../db/database.ts';
import type { MachineRow, OperationRow, VolumeRow } from '../../db/tables.ts';
import { HostUnavailable } from '../../hosts/client.ts';
import { whileAnswering } from '../../hosts/while-answering.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { freed, lockVolumesOf } from '../../volumes/store.ts';
import { act, type Definition, machineOf, type Work } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';

export const CREATE: Definition = {
  act: act(
    async (app, work) => {
      const attaching = work.operation.args.volumes ?? [];
      const machine = machineOf(work);
      await bringSource(app, machine);
      const ensured = ensureOnHost(app, machine, 'running', { attaching });
      const report = await whileAnswering(app, machine.host_id, ensured);
      work.claimed.startPath = report.start_path;
      return report;
    },
    async ({ tx, steps, ...recording }, { isolation, private_ip }) => {
      const machine = machineOf(recording);
      const volumes = await lockVolumesOfCreate(tx, machine, recording.operation);
      // The machine owns its root disk from now on, so the volume's row is deleted.
      for (const volume of volumes.filter(isTaken)) await steps.removeVolume(volume);
      for (const volume of volumes.filter((row) => row.state === 'available')) {
        await steps.changeVolume(volume, { state: 'attached' });
      }
      // The machine comes last, because meters are switched at the time of the last entry of the feed.
      return steps.changeMachine(machine, { state: 'running', error: null, isolation, private_ip });
    },
  ),
  undo: act(
    async (app, work) => {
      const machine = await bumpForUndo(app, work);
      if (wasNeverSent(work)) return undefined;
      await removeFromHost(app, machine, machine.root_volume_id ?? undefined);
      return sizeOfReturned(app, machine);
    },
    async ({ tx, steps, ...recording }, sizeGb) => {
      const machine = machineOf(recording);
      for (const volume of await lockVolumesOf(tx, machine.id)) {
        await steps.changeVolume(volume, isTaken(volume) ? returned(sizeGb) : freed(volume));
      }
      // Deleting the machine's row also deletes its idempotency key (by cascade), so the client can use the key again.
      await steps.removeMachine(machine);
      return undefined;
    },
  ),
};

/** Whether the host certainly never heard of the machine, so that it need not be asked to remove it. */
const wasNeverSent = ({ cause, operation }: Work): boolean =>
  operation.attempts === 1 && cause instanceof HostUnavailable && !cause.mayHaveActed;

const isTaken = ({ state }: VolumeRow): boolean => state === 'taken';

/** Locks the root volume and the data volumes of a machine that is being created. Most machines have none. */
async function lockVolumesOfCreate(tx: Tx, machine: MachineRow, { args }: OperationRow): Promise<VolumeRow[]> {
  const hasVolumes = machine.root_volume_id !== null || args.volumes !== undefined;
  return hasVolumes ? lockVolumesOf(tx, machine.id) : [];
}

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
