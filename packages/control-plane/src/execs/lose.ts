// Jobs that ended because their machine did.
import type { NewActivity } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import { activityOfJob } from '../transitions/entries.ts';

/**
 * Ends the jobs of a machine that does not run any more, or those of `ids` that an earlier boot of the machine had.
 * Returns their entries for the feed.
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
