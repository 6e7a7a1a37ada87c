// Create: the machine's row is there, `provisioning` and charged for; the host makes it run. A create that fails leaves
// nothing: the host forgets the machine, its row goes, and a root volume that it took is a volume again.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../../app.ts';
import type { MachineRow } from '../../db/tables.ts';
import { inTransaction } from '../../db/transaction.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { bumpGeneration, lockMachine } from '../../machines/store.ts';
import { lockVolumesOf } from '../../volumes/store.ts';
import { act, type Definition, machineOf, type Work } from '../definition.ts';
import { updateClaimed } from '../store.ts';

export const CREATE: Definition = {
  act: act(
    (app, work) => ensureOnHost(app, machineOf(work), 'running'),
    async ({ tx, steps, ...recording }, { isolation, private_ip }) => {
      const machine = machineOf(recording);
      const taken = machine.root_volume_id === null ? [] : await lockVolumesOf(tx, machine.id);
      // The volume is the machine's own disk from now on.
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
      // The idempotency key goes with it, and is free again.
      await steps.removeMachine(machine);
      return undefined;
    },
  ),
};

/** The columns of a root volume that a machine gives back, grown to `sizeGb` where its host knows that. */
export const returned = (sizeGb: number | undefined) =>
  ({ state: 'available', machine_id: null, ...(sizeGb === undefined ? {} : { size_gb: sizeGb }) }) as const;

/** A new generation for what takes an operation back, so that the host ignores late calls of the operation. */
export function bumpForUndo(app: App, { claimed, ...work }: Work): Promise<MachineRow> {
  const { id } = machineOf(work);
  return inTransaction(app.db, async (tx) => {
    await Promise.all([lockMachine(tx, id), updateClaimed(tx, claimed, { undoing: true })]);
    return bumpGeneration(tx, id);
  });
}

/** Removes a machine from its host, and keeps its root disk as the volume `keepVolumeId`, unless that disk is lost. */
export async function removeFromHost(app: App, machine: MachineRow, keepVolumeId: string | undefined): Promise<void> {
  try {
    await app.hosts.client(machine.host_id).deleteMachine(machine.id, machine.generation, keepVolumeId);
  } catch (error) {
    const isLost = keepVolumeId !== undefined && error instanceof ServiceError && error.code === 'not_found';
    if (!isLost) throw error;
  }
}

/** GiB of the root volume that a machine gives back, which a boot that failed may have grown. Undefined when unknown. */
export async function sizeOfReturned(app: App, machine: MachineRow): Promise<number | undefined> {
  if (machine.root_volume_id === null || machine.started_at !== null) return undefined;
  const volumes = await app.hosts.client(machine.host_id).listVolumes();
  return volumes.find(({ volume_id }) => volume_id === machine.root_volume_id)?.size_gb;
}
