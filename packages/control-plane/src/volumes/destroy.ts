// Deletes a volume at the request of an account. The request hides the volume's row, then the operation deletes the
// disk on the host and the row.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { VOLUME_STATE_TABLE, type VolumeState } from '@sandbar/contract/volume.ts';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { lockVolume, volumeNotFound } from './store.ts';

/**
 * Deletes a volume of the account, or joins an unfinished delete. Throws `not_found`; `conflict` while the volume is
 * attached; `host_unavailable` when its host does not answer, and then the reconciler deletes the volume later.
 */
export async function deleteVolume(app: App, accountId: string, id: string): Promise<void> {
  const found = await app.db
    .selectFrom('volumes')
    .select(['id', 'host_id'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where('state', 'not in', ['creating', 'taken'])
    .executeTakeFirst();
  if (!found) throw volumeNotFound();
  const question = { kind: 'delete_volume', machine_id: null, volume_id: found.id, snapshot_id: null } as const;
  await requestOperation(app, {
    ...question,
    args: {},
    begin: async (tx) => {
      const { id: volumeId, host_id: hostId } = found;
      // Insert the operation before locking the volume (see the lock order in db/transaction.ts).
      const row = { ...question, account_id: accountId, host_id: hostId, args: '{}', actor: 'user' } as const;
      const claimed = await insertClaimed(app, tx, row);
      const volume = await lockVolume(tx, volumeId);
      if (!volume || volume.state === 'deleting' || volume.state === 'taken') throw volumeNotFound();
      checkDeletable(volume);
      const scope = { accountId, hostId, actor: 'user' } as const;
      await transition(app, tx, scope, (steps) => steps.changeVolume(volume, { state: 'deleting' }));
      return claimed;
    },
  });
}

function checkDeletable({ state, machine_id }: VolumeRow): void {
  if (machine_id === null && VOLUME_STATE_TABLE[state as VolumeState].delete) return;
  const what = state === 'attached' ? 'attached' : 'in error, and still attached';
  throw new ServiceError('conflict', `The volume is ${what} to machine ${machine_id}: detach it first.`);
}
