// Attaches and detaches volumes at the request of an account. Both are operations of the machine. The request checks
// the rules while the rows of the machine and the volume are locked.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { VolumeAttach } from '@sandbar/contract/volume.ts';
import { defaultMountPath } from '@sandbar/contract/volume-states.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, OperationArguments, VolumeRow } from '../db/tables.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { bumpGeneration, findMachine } from '../machines/store.ts';
import { movingVolumes } from '../moves/request.ts';
import { requestOperation } from '../operations/request.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { checkAttach, checkDetach, checkMountPath } from './attachable.ts';
import { findVolume, lockVolume, lockVolumesOf, type VisibleVolume, volumeNotFound } from './store.ts';

/**
 * Attaches a volume of the account to one of its machines. Does nothing if the volume is already attached there. A
 * volume on another host moves to the machine's host first; while it moves, the request waits for a minute at most.
 * Throws `validation_error` for a forbidden mount path, `not_found` for the volume or the machine, `conflict`, the
 * host's refusal (then nothing has changed), or `host_unavailable` (then the reconciler attaches the volume later).
 */
export async function attachVolume(
  app: App,
  accountId: string,
  id: string,
  body: VolumeAttach,
): Promise<VisibleVolume> {
  if (body.mount_path !== undefined) checkMountPath(body.mount_path);
  const volume = await findVolume(app, accountId, id);
  const mountPath = body.mount_path ?? defaultMountPath(volume.id);
  const { id: machineId } = await findMachine(app, accountId, body.machine_id);
  const subject = { volumeId: volume.id, machineId, args: { mount_path: mountPath } };
  await movingVolumes(app, (waitMs) =>
    requestOperation(app, {
      ...asked('attach', subject),
      waitMs,
      begin: async (tx, machine) => {
        if (!machine) throw machineNotFound();
        // Insert the operation before locking the volume (see the lock order in db/transaction.ts).
        const claimed = await insert(app, tx, machine, asked('attach', subject));
        const locked = await lockExisting(tx, volume.id);
        const others = (await lockVolumesOf(tx, machineId)).filter(
          (row) => row.kind === 'data' && row.id !== volume.id,
        );
        if (checkAttach({ volume: locked, machine, mountPath, others }) === 'allowed') {
          await bumpGeneration(tx, machine.id);
          return claimed;
        }
        await tx.deleteFrom('operations').where('id', '=', claimed.operation.id).execute();
        return 'noop';
      },
    }),
  );
  return findVolume(app, accountId, id);
}

/**
 * Detaches a volume of the account. Throws the same errors as `attachVolume`, and `conflict` when the volume is not
 * attached.
 */
export async function detachVolume(app: App, accountId: string, id: string): Promise<VisibleVolume> {
  const volume = await findVolume(app, accountId, id);
  const machineId = volume.machine_id ?? (await findAttachingMachine(app, volume.id));
  if (machineId === undefined) throw notAttached();
  const subject = { volumeId: volume.id, machineId, args: {} };
  await requestOperation(app, {
    ...asked('detach', subject),
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      const claimed = await insert(app, tx, machine, asked('detach', subject));
      if ((await lockExisting(tx, volume.id)).machine_id !== machineId) throw notAttached();
      checkDetach(machine);
      await bumpGeneration(tx, machine.id);
      return claimed;
    },
  });
  return findVolume(app, accountId, id);
}

/** Returns the machine to which a volume is being attached now. A detach request waits for the end of that attach. */
async function findAttachingMachine(app: App, volumeId: string): Promise<string | undefined> {
  const row = await app.db
    .selectFrom('operations')
    .select('machine_id')
    .where('volume_id', '=', volumeId)
    .where('kind', '=', 'attach')
    .where('finished_at', 'is', null)
    .executeTakeFirst();
  return row?.machine_id ?? undefined;
}

type Subject = { volumeId: string; machineId: string; args: OperationArguments };
type Question = ReturnType<typeof asked>;

const asked = (kind: 'attach' | 'detach', { volumeId, machineId, args }: Subject) => ({
  ...{ kind, machine_id: machineId, volume_id: volumeId, args },
  snapshot_id: null,
});

function insert(app: App, tx: Tx, { account_id, host_id }: MachineRow, question: Question): Promise<Claimed> {
  const row = { ...question, account_id, host_id, actor: 'user', args: JSON.stringify(question.args) } as const;
  return insertClaimed(app, tx, row);
}

/** Locks the volume and returns its row. Throws `not_found` when the volume was deleted meanwhile. */
async function lockExisting(tx: Tx, id: string): Promise<VolumeRow> {
  const row = await lockVolume(tx, id);
  if (!row || row.state === 'deleting') throw volumeNotFound();
  return row;
}

const notAttached = (): ServiceError => new ServiceError('conflict', 'The volume is not attached to a machine.');
