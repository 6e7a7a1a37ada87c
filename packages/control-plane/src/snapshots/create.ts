// Takes a snapshot of a machine at the request of an account. The request inserts the snapshot's row, which is hidden
// from clients. Then the operation takes the snapshot on the host and makes it visible.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { SnapshotCreate } from '@sandbar/contract/snapshot.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { checkAction } from '../machines/rules.ts';
import { findMachine } from '../machines/store.ts';
import { requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { listAttachedVolumes } from '../volumes/store.ts';
import { checkSnapshotLimit } from './limit.ts';
import { findSnapshot, type VisibleSnapshot } from './store.ts';

/**
 * Takes a snapshot of a machine of the account. Throws `not_found`, `host_unavailable` or the host's refusal. Throws
 * `conflict` if the machine's state does not allow a snapshot, or if a snapshot with memory is requested while volumes
 * are attached. Throws `quota_exceeded` if the account has the maximum number of snapshots. After an error nothing of
 * the snapshot remains, or the reconciler soon removes it.
 */
export async function createSnapshot(
  app: App,
  accountId: string,
  machineId: string,
  { name = '', memory = false }: SnapshotCreate,
): Promise<VisibleSnapshot> {
  const { id: machine_id } = await findMachine(app, accountId, machineId);
  const id = uuidv7();
  const question = { kind: 'snapshot', machine_id, volume_id: null, snapshot_id: id } as const;
  await requestOperation(app, {
    ...question,
    args: {},
    waitMs: app.config.timing.runningWaitMs,
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      checkAction(machine.state, memory ? 'snapshot-memory' : 'snapshot');
      if (memory) await checkHasNoVolumes(tx, machine);
      const { account_id, host_id, vcpus, memory_mb, stack, rootfs_size_gb: size_gb } = machine;
      const claimed = await insertClaimed(app, tx, { ...question, account_id, host_id, args: '{}', actor: 'user' });
      await checkSnapshotLimit(tx, account_id, app.config.bounds.snapshotsPerAccount);
      await tx
        .insertInto('snapshots')
        .values({
          ...{ id, account_id, host_id, machine_id, name, size_gb, stack, vcpus, memory_mb },
          kind: memory ? 'memory' : 'disk',
          state: 'creating',
        })
        .execute();
      return claimed;
    },
  });
  return findSnapshot(app.db, accountId, id);
}

/**
 * Throws `conflict` if the machine has attached volumes. The saved memory would contain their mounted file systems, and
 * a machine that resumes from the snapshot does not have these volumes.
 */
async function checkHasNoVolumes(tx: Tx, machine: MachineRow): Promise<void> {
  if ((await listAttachedVolumes(tx, machine.id)).length === 0) return;
  throw new ServiceError('conflict', 'The machine has volumes: detach them first, or take a snapshot without memory.');
}
