// Delete: the mark on the row is the decision, and whoever sets it is the one whose delete it is. What follows may be
// repeated by anybody: the host forgets the disk, then one transaction forgets the row and gives its storage back.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { VOLUME_STATE_TABLE, VOLUME_STATES } from '@sandbar/contract/volume.ts';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { VolumeRow } from '../db/tables.ts';
import { releaseQuota } from '../quotas/charge.ts';
import { findVolume, isVisible, volumeAmounts } from './store.ts';

const WIDTH = 8;
const DELETABLE = VOLUME_STATES.filter((state) => VOLUME_STATE_TABLE[state].delete);

/**
 * Deletes a volume of the account. Throws `not_found`, also while it is being deleted; `conflict` while it is attached;
 * `host_unavailable` when its host does not answer, and then the reconciler finishes it.
 */
export async function deleteVolume(app: App, accountId: string, id: string): Promise<void> {
  await findVolume(app, accountId, id);
  const volume = await markDeleting(app, id);
  if (!volume) throw notDeletable(await findVolume(app, accountId, id));
  await finishDelete(app, volume);
}

/** Finishes, on every host that answers, the deletes that a crash or a host that was away left half done. */
export async function finishVolumeDeletes(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const volumes = await app.db
    .selectFrom('volumes')
    .selectAll()
    .where('deleting', '=', true)
    .where('host_id', 'in', connected)
    .execute();
  await forEachBounded(volumes, WIDTH, async (volume) => {
    try {
      if (await finishDelete(app, volume)) {
        app.log.info({ volume_id: volume.id }, 'the reconciler finished the delete of a volume');
      }
    } catch (err) {
      app.log.warn({ err, volume_id: volume.id }, 'the reconciler could not finish the delete of a volume yet');
    }
  });
}

function notDeletable({ state, change, machine_id }: VolumeRow): ServiceError {
  if (machine_id === null) return new ServiceError('conflict', 'The volume was being detached. Retry now.');
  if (change !== null) {
    return new ServiceError(
      'conflict',
      `The volume is ${change} ${change === 'attaching' ? 'to' : 'from'} machine ${machine_id}. Retry later.`,
    );
  }
  const what = state === 'attached' ? 'attached' : 'in error, and still attached';
  return new ServiceError('conflict', `The volume is ${what} to machine ${machine_id}: detach it first.`);
}

/** One statement: of several deletes at once, one gets the row. */
function markDeleting(app: App, id: string): Promise<VolumeRow | undefined> {
  return app.db
    .updateTable('volumes')
    .set({ deleting: true })
    .where('id', '=', id)
    .where(isVisible)
    .where('change', 'is', null)
    .where('state', 'in', DELETABLE)
    .where('machine_id', 'is', null)
    .returningAll()
    .executeTakeFirst();
}

/** Whether this call was the one that finished it; the row is removed once, and with it what it was charged for. */
async function finishDelete(app: App, volume: VolumeRow): Promise<boolean> {
  await app.hosts.client(volume.host_id).deleteVolume(volume.id);
  return app.db.transaction().execute(async (tx) => {
    const row = await tx
      .deleteFrom('volumes')
      .where('id', '=', volume.id)
      .where('deleting', '=', true)
      .returningAll()
      .executeTakeFirst();
    if (!row) return false;
    await releaseQuota(tx, row.account_id, volumeAmounts(row));
    await writeActivity(tx, row.account_id, [
      { action: 'volume.deleted', actor: 'user', metadata: { volume_id: row.id } },
    ]);
    return true;
  });
}
