// What only the audit mends; the rest is the reconciler's own work, done now. Each looks again right before it acts.
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { loseRunningJobs } from '../execs/lose.ts';
import { lockMachine } from '../machines/store.ts';
import { writeActivity } from '../transitions/effects.ts';

/** Records the running jobs of a machine that does not run as lost, with their entries in the feed. */
export function loseJobsOf(app: App, machineId: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    const machine = await lockMachine(tx, machineId);
    if (!machine || machine.state === 'running') return;
    await writeActivity(tx, machine.account_id, await loseRunningJobs(tx, machineId));
  });
}
