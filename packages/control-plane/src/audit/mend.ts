// The repairs that only the audit makes. For all other findings the audit calls functions of the reconciler. Each
// repair checks again, right before it changes anything, that the difference still exists.
import type { ResourceKind } from '@sandbar/contract/billing.ts';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { chargeAccounts } from '../billing/charge.ts';
import { NEXT_INSTANT } from '../billing/clock.ts';
import { switchMeters } from '../billing/meters.ts';
import type { Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { loseRunningJobs } from '../execs/lose.ts';
import { lockMachine } from '../machines/store.ts';
import { lockSnapshot } from '../snapshots/store.ts';
import { writeActivity } from '../transitions/effects.ts';
import { type Metered, meteredMachine, meteredSnapshot, meteredVolume } from '../transitions/metered.ts';
import { lockVolume } from '../volumes/store.ts';
import { findMismatches } from './mismatches.ts';

/** Sets the running jobs of a machine to `lost` and writes their activity entries. Does nothing if the machine runs. */
export function loseJobsOf(app: App, machineId: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    const machine = await lockMachine(tx, machineId);
    if (!machine || machine.state === 'running') return;
    await writeActivity(tx, machine.account_id, await loseRunningJobs(tx, machineId));
  });
}

/**
 * Closes a wrong open meter, and opens the right meter from now on. The use until now is charged as it was metered,
 * because the size and price of a meter never change. Does nothing if the open meter is right.
 */
export function correctMeter(app: App, kind: ResourceKind, id: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    const resource = await lockResource(tx, kind, id);
    const [mismatch] = await findMismatches(tx, id);
    const accountId = mismatch?.used_account ?? mismatch?.meter_account;
    if (!accountId) return;
    await lockAccount(tx, accountId);
    await tx.updateTable('accounts').set({ activity_at: NEXT_INSTANT }).where('id', '=', accountId).execute();
    const { metadata = {}, metered } = resource ?? {};
    const change = { resourceKind: kind, resourceId: id, metadata, wasMetered: true, after: metered };
    await switchMeters(tx, accountId, [change]);
    await chargeAccounts(tx, [accountId]);
    app.log.warn({ account_id: accountId, [`${kind}_id`]: id, ...metered }, 'a meter was corrected');
  });
}

type Resource = { metadata: Record<string, unknown>; metered: Metered | undefined };

/** Locks a resource, so that its state and its meter stay as they are. Returns undefined if it does not exist. */
async function lockResource(tx: Tx, kind: ResourceKind, id: string): Promise<Resource | undefined> {
  switch (kind) {
    case 'machine': {
      const row = await lockMachine(tx, id);
      return row && { metadata: row.metadata, metered: meteredMachine(row) };
    }
    case 'volume': {
      const row = await lockVolume(tx, id);
      return row && { metadata: {}, metered: meteredVolume(row) };
    }
    case 'snapshot': {
      const row = await lockSnapshot(tx, id);
      return row && { metadata: {}, metered: meteredSnapshot(row) };
    }
  }
}
