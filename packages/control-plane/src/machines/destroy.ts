// Delete: accepted in every state. It takes the claim by force, so it never waits behind a create or a stop that hangs;
// the operation it overtook fails at its next write.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { Desired, MachineRow } from '../db/tables.ts';
import { deleteSnapshotsOf } from '../snapshots/destroy.ts';
import { type Claim, claimForDestroy, holdClaim, withMachineClaim } from './claim.ts';
import { discard } from './create.ts';
import { machineNotFound } from './refusals.ts';
import { sizeOfReturned } from './root-volume.ts';
import { changeState, findMachine } from './store.ts';

/**
 * Destroys a machine of the account. Throws `not_found` when it is destroyed already; `conflict` when it has snapshots,
 * unless `deleteSnapshots` takes them along; `host_unavailable` when its host does not answer, and then the reconciler
 * finishes it. With `preserveStorage` its root disk becomes a detached volume.
 */
export async function destroyMachine(
  app: App,
  accountId: string,
  id: string,
  { preserveStorage = false, deleteSnapshots = false } = {},
): Promise<MachineRow> {
  const found = await findMachine(app, accountId, id);
  if (found.state === 'destroyed') throw machineNotFound();
  const claim = await claimForDestroy(app, id, { keepVolumeId: preserveStorage ? uuidv7() : null, deleteSnapshots });
  if (claim === 'has snapshots') throw hasSnapshots();
  if (claim) return holdClaim(app, claim, (held) => finishDestroy(app, held));
  // It is being destroyed by somebody else: wait for the outcome, and finish it if that one gave up.
  return withMachineClaim(app, id, async (held) => {
    if (held.machine.state === 'destroyed') throw machineNotFound();
    if (held.machine.desired !== 'discarded') return finishDestroy(app, held);
    await discard(app, held);
    throw machineNotFound();
  });
}

/**
 * Removes a claimed machine that is desired destroyed from its host, and its snapshots, then records it: whoever asked for
 * it has agreed to what is left of them. Throws `conflict` when its disk was to be kept and is not there any more: then
 * nothing is deleted.
 */
export async function finishDestroy(app: App, { machine, token }: Claim): Promise<MachineRow> {
  const { id, generation, keep_volume_id, started_at } = machine;
  // A disk that cannot be kept keeps the machine, and then its snapshots are what is left of it.
  if (keep_volume_id === null) await deleteSnapshotsOf(app, { machine, token });
  try {
    await app.hosts.client(machine.host_id).deleteMachine(id, generation, keep_volume_id ?? undefined);
  } catch (error) {
    const hasNoDisk = keep_volume_id !== null && error instanceof ServiceError && error.code === 'not_found';
    if (!hasNoDisk) throw error;
    await stopKeeping(app, { machine, token });
    // One that never ran had nothing on its disk, and is destroyed all the same.
    if (started_at !== null) throw diskIsLost();
  }
  if (keep_volume_id !== null) await deleteSnapshotsOf(app, { machine, token });
  const returnedSizeGb = await sizeOfReturned(app, machine);
  const row = await changeState(app, id, { token }, { to: 'destroyed', error: null, returnedSizeGb });
  if (!row) throw machineNotFound();
  return row;
}

/** Nothing is left to keep: the delete is taken back, for a machine that has run, and can be asked for without keeping. */
async function stopKeeping(app: App, { machine, token }: Claim): Promise<void> {
  const desired: Desired = machine.state === 'running' ? 'running' : 'stopped';
  await app.db
    .updateTable('machines')
    .set({ keep_volume_id: null, ...(machine.started_at === null ? {} : { desired }) })
    .where('id', '=', machine.id)
    .where('claim_token', '=', token)
    .execute();
}

const hasSnapshots = (): ServiceError =>
  new ServiceError(
    'conflict',
    'The machine has snapshots: delete them first, or with the machine by delete_snapshots=true.',
  );

const diskIsLost = (): ServiceError =>
  new ServiceError(
    'conflict',
    'The disk of the machine is not there any more and cannot be kept. Delete it without preserve_storage.',
  );
