// What only the audit mends; the rest is the reconciler's own work, done now. Each looks again right before it acts.

import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import { holdClaim, tryClaim } from '../machines/claim.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { loseRunningJobs } from '../machines/store.ts';
import { isOfThisDatabase } from '../reconcilers/unknown.ts';

/** Ends the virtual machine of a machine in error; its disk stays. */
export async function stopInError(app: App, id: string): Promise<void> {
  const claim = await tryClaim(app, id);
  if (!claim) return;
  await holdClaim(app, claim, async ({ machine }) => {
    if (machine.state === 'error') await ensureOnHost(app, machine, 'stopped');
  });
}

/** Removes a disk that no row refers to, neither a volume's nor a machine's that is to become one. */
export async function removeUnknownVolume(app: App, hostId: string, id: string): Promise<void> {
  const volume = await app.db.selectFrom('volumes').select('id').where('id', '=', id).executeTakeFirst();
  const machine = await app.db
    .selectFrom('machines')
    .select('id')
    .where('keep_volume_id', '=', id)
    .where('state', '<>', 'destroyed')
    .executeTakeFirst();
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (volume || machine || !host || !isOfThisDatabase(id, host.created_at)) return;
  await app.hosts.client(hostId).deleteVolume(id);
  app.log.warn({ volume_id: id }, 'removed a disk from its host that no account has');
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
