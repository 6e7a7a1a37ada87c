// Restores a machine from one of its snapshots at the request of an account.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { checkAction } from '../machines/rules.ts';
import { bumpGeneration, findMachine, type MachineView } from '../machines/store.ts';
import { requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { findSnapshot, lockSnapshot, snapshotNotFound } from './store.ts';

/**
 * Resets a machine's root disk to a snapshot; a running machine reboots. Throws `not_found`, `conflict`,
 * `host_unavailable`, or the host's refusal. After a refusal the machine is unchanged, or stopped if it did not boot
 * from the restored disk.
 */
export async function restoreSnapshot(app: App, accountId: string, id: string): Promise<MachineView> {
  const { id: snapshot_id, machine_id } = await findSnapshot(app.db, accountId, id);
  const question = { kind: 'restore', machine_id, volume_id: null, snapshot_id } as const;
  await requestOperation(app, {
    ...question,
    args: {},
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      checkAction(machine.state, 'restore');
      const { account_id, host_id } = machine;
      // Insert the operation before locking the snapshot (see the lock order in db/transaction.ts).
      const claimed = await insertClaimed(app, tx, { ...question, account_id, host_id, args: '{}', actor: 'user' });
      const snapshot = await lockSnapshot(tx, snapshot_id);
      if (!snapshot || snapshot.state === 'deleting') throw snapshotNotFound();
      if (snapshot.state !== 'ready') {
        throw new ServiceError('conflict', `The snapshot is in error: ${snapshot.error ?? 'it is damaged.'}`);
      }
      await bumpGeneration(tx, machine_id);
      return claimed;
    },
  });
  return findMachine(app, accountId, machine_id);
}
