// Deletes a volume, at the request of an account or for the reclaimer. The transaction that begins the delete hides the
// volume's row. Then the operation deletes the disk on the host and the row.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { VOLUME_STATE_TABLE, type VolumeState } from '@sandbar/contract/volume-states.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { VolumeRow } from '../db/tables.ts';
import { requestOperation } from '../operations/request.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { lockVolume, volumeNotFound } from './store.ts';

/** A volume that is to be deleted. These columns never change. */
export type DeletableVolume = Pick<VolumeRow, 'id' | 'account_id' | 'host_id'>;

/**
 * Deletes a volume of the account, or joins an unfinished delete. Throws `not_found`; `conflict` while the volume is
 * attached; `host_unavailable` when its host does not answer, and then the reconciler deletes the volume later.
 */
export async function deleteVolume(app: App, accountId: string, id: string): Promise<void> {
  const found = await app.db
    .selectFrom('volumes')
    .select(['id', 'account_id', 'host_id'])
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .where('state', 'not in', ['creating', 'taken'])
    .executeTakeFirst();
  if (!found) throw volumeNotFound();
  await requestOperation(app, {
    ...question(found.id),
    args: {},
    begin: (tx) => beginDeleteVolume(app, tx, found, 'user'),
  });
}

const question = (id: string) =>
  ({ kind: 'delete_volume', machine_id: null, volume_id: id, snapshot_id: null }) as const;

/**
 * Inserts an operation that deletes a volume, and hides the volume. The caller has checked that no operation on the
 * volume is unfinished. Throws `not_found` when the volume was deleted meanwhile, and `conflict` while it is attached.
 */
export async function beginDeleteVolume(
  app: App,
  tx: Tx,
  { id, account_id, host_id }: DeletableVolume,
  actor: ActivityActor,
): Promise<Claimed> {
  // Insert the operation before locking the volume (see the lock order in db/transaction.ts).
  const claimed = await insertClaimed(app, tx, { ...question(id), account_id, host_id, args: '{}', actor });
  const volume = await lockVolume(tx, id);
  if (!volume || volume.state === 'deleting' || volume.state === 'taken') throw volumeNotFound();
  checkDeletable(volume);
  const scope = { accountId: account_id, hostId: host_id, actor };
  await transition(app, tx, scope, (steps) => steps.changeVolume(volume, { state: 'deleting' }));
  return claimed;
}

function checkDeletable({ state, machine_id }: VolumeRow): void {
  if (machine_id === null && VOLUME_STATE_TABLE[state as VolumeState].delete) return;
  const what = state === 'attached' ? 'attached' : 'in error, and still attached';
  throw new ServiceError('conflict', `The volume is ${what} to machine ${machine_id}: detach it first.`);
}
