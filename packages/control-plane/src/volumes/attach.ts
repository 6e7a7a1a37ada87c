// Attach and detach as an account asks for them: under the claim of the machine, so that nothing else happens to it
// meanwhile, and decided on rows that are locked.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { defaultMountPath, type VolumeAttach } from '@sandbar/contract/volume.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { type Claim, withMachineClaim } from '../machines/claim.ts';
import { findMachine } from '../machines/store.ts';
import { checkAttach, checkDetach, checkMountPath } from './attachable.ts';
import { beginChange, finishChange } from './change.ts';
import { settleVolumes } from './settle.ts';
import { findVolume, isVisible, volumeNotFound } from './store.ts';

/**
 * Attaches a volume of the account to one of its machines; where it is already it stays. Throws `validation_error` for a
 * path, `not_found` for volume or machine, `conflict`, what the host refused with (then it is as before), or
 * `host_unavailable` (then the reconciler finishes it).
 */
export async function attachVolume(app: App, accountId: string, id: string, body: VolumeAttach): Promise<VolumeRow> {
  if (body.mount_path !== undefined) checkMountPath(body.mount_path);
  const volume = await findVolume(app, accountId, id);
  const mountPath = body.mount_path ?? defaultMountPath(volume.id);
  await findMachine(app, accountId, body.machine_id);
  return underClaim(app, body.machine_id, (tx, machine) => recordAttach(tx, id, machine, mountPath));
}

/** Detaches a volume of the account. Throws as attachVolume does; `conflict` as well when it is not attached. */
export async function detachVolume(app: App, accountId: string, id: string): Promise<VolumeRow> {
  const { machine_id } = await findVolume(app, accountId, id);
  if (machine_id === null) throw notAttached();
  return underClaim(app, machine_id, (tx, machine) => recordDetach(tx, id, machine));
}

/** Decides on the locked rows, and makes it so. What was decided to stay as it is comes back unchanged. */
function underClaim(
  app: App,
  machineId: string,
  decide: (tx: Tx, machine: MachineRow) => Promise<VolumeRow>,
): Promise<VolumeRow> {
  return withMachineClaim(app, machineId, async (claim: Claim) => {
    const machine = await settleVolumes(app, claim);
    let unchanged: VolumeRow | undefined;
    const moving = await beginChange(app, { machine, token: claim.token }, async (tx, locked) => {
      const volume = await decide(tx, locked);
      if (volume.change !== null) return volume;
      unchanged = volume;
      return undefined;
    });
    if (moving) return { row: await finishChange(app, claim.token, moving) };
    if (!unchanged) throw volumeNotFound();
    return { row: unchanged };
    // In an object, since a row with a claim of its own would pass for the machine's.
  }).then(({ row }) => row);
}

async function recordAttach(tx: Tx, id: string, machine: MachineRow, mountPath: string): Promise<VolumeRow> {
  const volume = await lockVolume(tx, id);
  const others = await tx
    .selectFrom('volumes')
    .selectAll()
    .where('machine_id', '=', machine.id)
    .where('kind', '=', 'data')
    .where('id', '<>', id)
    .execute();
  if (checkAttach({ volume, machine, mountPath, others }) === 'noop') return volume;
  return tx
    .updateTable('volumes')
    .set({ change: 'attaching', machine_id: machine.id, mount_path: mountPath })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

async function recordDetach(tx: Tx, id: string, machine: MachineRow): Promise<VolumeRow> {
  const volume = await lockVolume(tx, id);
  if (volume.machine_id !== machine.id) throw notAttached();
  checkDetach(machine);
  return tx
    .updateTable('volumes')
    .set({ change: 'detaching' })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** The volume as it is under its lock. Throws `not_found` when it was deleted meanwhile. */
async function lockVolume(tx: Tx, id: string): Promise<VolumeRow> {
  const row = await tx
    .selectFrom('volumes')
    .selectAll()
    .where('id', '=', id)
    .where(isVisible)
    .forUpdate()
    .executeTakeFirst();
  if (!row) throw volumeNotFound();
  return row;
}

const notAttached = (): ServiceError => new ServiceError('conflict', 'The volume is not attached to a machine.');
