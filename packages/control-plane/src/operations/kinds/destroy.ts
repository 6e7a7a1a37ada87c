// The destroy operation: the host deletes the machine and its snapshots. If the client asked for it, the host keeps the
// root disk as a volume. A failed destroy is repeated until it succeeds. The only exception: if the root disk should be
// kept but is lost, the operation is refused and the machine is not deleted.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../../app.ts';
import type { MachineRow, SnapshotRow } from '../../db/tables.ts';
import { inTransaction } from '../../db/transaction.ts';
import { lockMachine } from '../../machines/store.ts';
import { transition } from '../../transitions/transition.ts';
import { freed, lockVolumesOf } from '../../volumes/store.ts';
import { act, type Definition, machineOf, type Recording, type Work } from '../definition.ts';
import { updateClaimed } from '../store.ts';
import { returned, sizeOfReturned } from './create.ts';

/** The client asked to keep the root disk of a machine that has run, but the host does not have the disk any more. */
class DiskIsLost extends ServiceError {
  constructor() {
    super(
      'conflict',
      'The disk of the machine is not there any more and cannot be kept. Delete it without preserve_storage.',
    );
  }
}

type Removed = { keptDisk: boolean; returnedSizeGb: number | undefined };

export const DESTROY: Definition = {
  act: act(remove, record),
  isRefusal: (error) => error instanceof DiskIsLost,
  undo: act(
    async () => undefined,
    async ({ steps, ...recording }) => {
      const machine = machineOf(recording);
      // This destroy cancelled a start, so no other operation will move the machine out of `provisioning`.
      if (machine.state === 'provisioning') {
        await steps.changeMachine(machine, { state: 'error', error: 'Its disk is not there any more.' });
      }
    },
  ),
};

async function remove(app: App, work: Work): Promise<Removed> {
  const machine = machineOf(work);
  const keepVolumeId = work.operation.args.keep_volume_id;
  // If the root disk has to be kept, delete the snapshots last: when the disk turns out to be lost, they are the only
  // copies of its data.
  if (keepVolumeId === undefined) await removeSnapshots(app, work);
  const keptDisk = await removeMachine(app, machine, keepVolumeId);
  if (keepVolumeId !== undefined) await removeSnapshots(app, work);
  return { keptDisk, returnedSizeGb: await sizeOfReturned(app, machine) };
}

/**
 * Deletes the machine on its host. Returns true if the root disk was kept as a volume. A machine that never ran may
 * have no disk: then it returns false. Throws `DiskIsLost` when a machine that has run has no disk.
 */
async function removeMachine(app: App, machine: MachineRow, keepVolumeId: string | undefined): Promise<boolean> {
  try {
    await app.hosts.client(machine.host_id).deleteMachine(machine.id, machine.generation, keepVolumeId);
    return keepVolumeId !== undefined;
  } catch (error) {
    const hasNoDisk = keepVolumeId !== undefined && error instanceof ServiceError && error.code === 'not_found';
    if (!hasNoDisk) throw error;
    if (machine.started_at !== null) throw new DiskIsLost();
    return false;
  }
}

async function record({ tx, steps, operation, ...recording }: Recording, removed: Removed): Promise<void> {
  const machine = machineOf({ ...recording, operation });
  const { keep_volume_id: keepVolumeId } = operation.args;
  const { snapshots_deleted: snapshotsDeleted = 0 } = (await latestArguments(tx, operation.id)) ?? {};
  let disk: string | null = null;
  for (const volume of await lockVolumesOf(tx, machine.id)) {
    if (volume.state === 'taken') {
      await steps.changeVolume(volume, returned(removed.returnedSizeGb));
      disk = volume.id;
    } else await steps.changeVolume(volume, freed(volume));
  }
  if (disk === null && removed.keptDisk && keepVolumeId !== undefined) {
    disk = keepVolumeId;
    await steps.insertVolume(keptDisk(machine, keepVolumeId));
  }
  const to = { state: 'destroyed', error: null, root_volume_id: disk } as const;
  await steps.changeMachine(machine, to, { keptDisk: disk !== null, snapshotsDeleted });
  // Delete the machine's expiry.
  await tx.deleteFrom('operations').where('machine_id', '=', machine.id).where('kind', '=', 'expire').execute();
}

const keptDisk = ({ account_id, host_id, rootfs_size_gb: size_gb, stack }: MachineRow, id: string) =>
  ({ id, account_id, host_id, kind: 'root', size_gb, state: 'available', stack }) as const;

const latestArguments = async (tx: Recording['tx'], id: string) =>
  (await tx.selectFrom('operations').select('args').where('id', '=', id).executeTakeFirst())?.args;

/**
 * Deletes every snapshot of a machine that is being destroyed, including snapshots that are still being created or
 * deleted.
 */
async function removeSnapshots(app: App, work: Work): Promise<void> {
  const snapshots = await app.db
    .selectFrom('snapshots')
    .select('id')
    .where('machine_id', '=', machineOf(work).id)
    .orderBy('id')
    .execute();
  for (const { id } of snapshots) {
    await app.hosts.client(work.operation.host_id).deleteSnapshot(id);
    await recordSnapshotRemoved(app, work, id);
  }
}

async function recordSnapshotRemoved(app: App, { claimed, operation, ...work }: Work, id: string): Promise<void> {
  const machine = machineOf({ ...work, operation });
  await inTransaction(app.db, async (tx) => {
    const [, current, snapshot] = await Promise.all([
      lockMachine(tx, machine.id),
      // This update only checks the claim: it changes no value, but throws `ClaimLost` if another process has claimed
      // the operation meanwhile.
      updateClaimed(tx, claimed, { undoing: operation.undoing }),
      tx.selectFrom('snapshots').selectAll().where('id', '=', id).forUpdate().executeTakeFirst(),
    ]);
    if (!snapshot) return;
    if (isShown(snapshot)) {
      const args = { ...current.args, snapshots_deleted: (current.args.snapshots_deleted ?? 0) + 1 };
      await updateClaimed(tx, claimed, { args: JSON.stringify(args) });
    }
    const scope = { accountId: machine.account_id, hostId: machine.host_id, actor: operation.actor };
    await transition(app, tx, scope, (steps) => steps.removeSnapshot(snapshot));
  });
}

/**
 * True for snapshots that the client still sees. A snapshot that the client deleted separately is not counted in the
 * activity entry of the machine's destruction.
 */
const isShown = ({ state }: SnapshotRow): boolean => state === 'ready' || state === 'error';
