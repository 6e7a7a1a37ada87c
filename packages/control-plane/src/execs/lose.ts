// Records jobs as `lost` because their machine ended.
import type { NewActivity } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import { activityOfJob } from '../transitions/entries.ts';

/**
 * Sets the running jobs of a machine to `lost`: those in `ids`, or all of them if `ids` is absent. Returns the entries
 * for the activity feed, which the caller has to write.
 */
export async function loseRunningJobs(tx: Tx, machineId: string, ids?: readonly string[]): Promise<NewActivity[]> {
  let update = tx
    .updateTable('execs')
    .set({ status: 'lost', finished_at: sql<Date>`now()` })
    .where('machine_id', '=', machineId)
    .where('status', '=', 'running');
  if (ids) update = update.where((is) => is('id', '=', is.fn.any(is.val([...ids]))));
  const lost = await update.returningAll().execute();
  return lost.map(activityOfJob);
}
