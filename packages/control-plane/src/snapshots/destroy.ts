// Deletes a snapshot at the request of an account. The request hides the snapshot's row, then the operation deletes the
// snapshot on the host. The host keeps the disk layers of the snapshot that a machine or another snapshot still uses.
import type { App } from '../app.ts';
import { requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { lockSnapshot, snapshotNotFound } from './store.ts';

/**
 * Deletes a snapshot of the account, or joins an unfinished delete. Waits while a machine is being restored from the
 * snapshot. Throws `not_found`; `host_unavailable` when its host does not answer, and then the reconciler deletes the
 * snapshot later.
 */
export async function deleteSnapshot(app: App, accountId: string, id: string): Promise<void> {
  const found = await app.db
    .selectFrom('snapshots')
    .select(['id', 'host_id'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where('state', '<>', 'creating')
    .executeTakeFirst();
  if (!found) throw snapshotNotFound();
  const question = { kind: 'delete_snapshot', machine_id: null, volume_id: null, snapshot_id: found.id } as const;
  await requestOperation(app, {
    ...question,
    args: {},
    begin: async (tx) => {
      const { id: snapshotId, host_id: hostId } = found;
      // Insert the operation before locking the snapshot (see the lock order in db/transaction.ts).
      const row = { ...question, account_id: accountId, host_id: hostId, args: '{}', actor: 'user' } as const;
      const claimed = await insertClaimed(app, tx, row);
      const snapshot = await lockSnapshot(tx, snapshotId);
      if (!snapshot || snapshot.state === 'deleting') throw snapshotNotFound();
      const scope = { accountId, hostId, actor: 'user' } as const;
      await transition(app, tx, scope, (steps) => steps.changeSnapshot(snapshot, { state: 'deleting' }));
      return claimed;
    },
  });
}
