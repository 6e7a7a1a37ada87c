// A snapshot of a machine: under the machine's claim its row is written, unseen, then the host takes it, then one
// transaction shows it. What fails in between is undone here; what dies in between the reconciler undoes.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { SnapshotCreate, SnapshotKind } from '@sandbar/contract/snapshot.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { MachineRow, SnapshotRow } from '../db/tables.ts';
import { type Claim, withMachineClaim } from '../machines/claim.ts';
import { ClaimLost } from '../machines/refusals.ts';
import { findMachine } from '../machines/store.ts';
import { checkAction, checkNotLeaving } from '../machines/transition.ts';
import { beginSnapshot, findSnapshot, recordSnapshot } from './store.ts';
import { undoSnapshot } from './undo.ts';

/**
 * Takes a snapshot of a machine of the account. Throws `not_found`; `conflict` in a state that does not allow it, or for
 * memory beside attached volumes; what the host refused with; `host_unavailable`. After a throw nothing of it is left, or
 * soon will be.
 */
export async function createSnapshot(
  app: App,
  accountId: string,
  machineId: string,
  { name = '', memory = false }: SnapshotCreate,
): Promise<SnapshotRow> {
  const { id } = await findMachine(app, accountId, machineId);
  const kind = memory ? 'memory' : 'disk';
  return withMachineClaim(app, id, async (claim) => {
    checkNotLeaving(claim.machine.desired);
    checkAction(claim.machine.state, memory ? 'snapshot-memory' : 'snapshot');
    if (memory) await checkHasNoVolumes(app, claim.machine);
    return take(app, claim, { id: uuidv7(), name, kind });
  });
}

/** The memory would know file systems that no other machine can have. */
async function checkHasNoVolumes(app: App, machine: MachineRow): Promise<void> {
  const attached = await app.db
    .selectFrom('volumes')
    .select('id')
    .where('machine_id', '=', machine.id)
    .where('kind', '=', 'data')
    .executeTakeFirst();
  if (attached) {
    throw new ServiceError(
      'conflict',
      'The machine has volumes: detach them first, or take a snapshot without memory.',
    );
  }
}

async function take(
  app: App,
  claim: Claim,
  snapshot: { id: string; name: string; kind: SnapshotKind },
): Promise<SnapshotRow> {
  const { machine } = claim;
  await beginSnapshot(app, claim, snapshot);
  try {
    const wanted = { generation: machine.generation, memory: snapshot.kind === 'memory' };
    const taken = await app.hosts
      .client(machine.host_id)
      .takeSnapshot(machine.id, snapshot.id, wanted, wanted.memory ? machine.memory_mb : 0);
    return await recordSnapshot(app, claim, taken);
  } catch (error) {
    // Who took the machine over to delete it removes its snapshots as well.
    if (error instanceof ClaimLost || (await tryToUndo(app, claim, snapshot.id))) throw error;
    // It was recorded, and only the answer was lost.
    return findSnapshot(app, machine.account_id, snapshot.id).catch(() => Promise.reject(error));
  }
}

/**
 * False when there is nothing to undo. The undo's own failure is logged and left to the reconciler: the client gets the
 * error that made it necessary.
 */
async function tryToUndo(app: App, claim: Claim, snapshotId: string): Promise<boolean> {
  try {
    return await undoSnapshot(app, claim, snapshotId);
  } catch (err) {
    app.log.warn({ err, snapshot_id: snapshotId }, 'a failed snapshot is left to the reconciler');
    app.reconcileSoon();
    return true;
  }
}
