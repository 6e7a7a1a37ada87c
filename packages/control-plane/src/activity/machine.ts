// Checks whether the account may read a machine's feed: it owns the machine, or it owned a machine whose row was
// deleted.
import type { App } from '../app.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { selectMachineViews } from '../machines/store.ts';

/** Throws `not_found` for a machine that does not exist or belongs to another account. */
export async function checkHasHistory(app: App, accountId: string, machineId: string): Promise<void> {
  const row = await selectMachineViews(app.db)
    .where('id', '=', machineId)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  if (row) return;
  const entry = await app.db
    .selectFrom('activity')
    .select('id')
    .where('account_id', '=', accountId)
    .where('machine_id', '=', machineId)
    .limit(1)
    .executeTakeFirst();
  if (!entry) throw machineNotFound();
}
