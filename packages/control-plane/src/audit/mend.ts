// What only the audit mends; the rest is the reconciler's own work, done now. Each looks again right before it acts.

import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import { holdClaim, tryClaim } from '../machines/claim.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { loseRunningJobs } from '../machines/store.ts';

/** Ends the virtual machine of a machine in error; its disk stays. */
export async function stopInError(app: App, id: string): Promise<void> {
  const claim = await tryClaim(app, id);
  if (!claim) return;
  await holdClaim(app, claim, async ({ machine }) => {
    if (machine.state === 'error') await ensureOnHost(app, machine, 'stopped');
  });
}

/** Records the running jobs of a machine that does not run as lost, with their entries in the feed. */
export function loseJobsOf(app: App, machineId: string): Promise<void> {
  return app.db.transaction().execute(async (tx) => {
    const machine = await tx
      .selectFrom('machines')
      .select('account_id')
      .where('id', '=', machineId)
      .where('state', '<>', 'running')
      .forNoKeyUpdate()
      .executeTakeFirst();
    if (!machine) return;
    const entries = await loseRunningJobs(tx, machineId);
    await writeActivity(tx, machine.account_id, entries);
  });
}
