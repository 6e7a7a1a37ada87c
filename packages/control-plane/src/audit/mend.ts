// The repairs that only the audit makes. For all other findings the audit calls functions of the reconciler. Each
// repair checks again, right before it changes anything, that the difference still exists.
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { loseRunningJobs } from '../execs/lose.ts';
import { lockMachine } from '../machines/store.ts';
import { writeActivity } from '../transitions/effects.ts';

/** Sets the running jobs of a machine to `lost` and writes their activity entries. Does nothing if the machine runs. */
export function loseJobsOf(app: App, machineId: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    const machine = await lockMachine(tx, machineId);
    if (!machine || machine.state === 'running') return;
    await writeActivity(tx, machine.account_id, await loseRunningJobs(tx, machineId));
  });
}
