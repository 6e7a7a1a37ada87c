// Start of a stopped machine: its memory is reserved again and its host boots it from its disk.
//
//   stopped --reserve--> provisioning --host runs it--> running
//      ^------------------/ on failure: stopped on the host, reservation given back
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { checkBalance } from '../wallet/check.ts';
import { type Claim, withMachineClaim } from './claim.ts';
import { makeRunning } from './create.ts';
import { ClaimLost, machineNotFound } from './refusals.ts';
import { finishStop } from './stop.ts';
import { changeState, findMachine, setDesired } from './store.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';
import { checkAction, checkNotLeaving } from './transition.ts';

/** Starts a machine of the account; one that runs already stays as it is. Throws `conflict`, `fleet_capacity`, ... */
export async function startMachine(app: App, accountId: string, id: string): Promise<MachineRow> {
  await findMachine(app, accountId, id);
  return withMachineClaim(app, id, async ({ machine, token }) => {
    checkNotLeaving(machine.desired);
    if (checkAction(machine.state, 'start') === 'noop') return machine;
    await checkMayRun(app, machine);
    const row = await changeState(
      app,
      id,
      { token },
      { to: 'provisioning', desired: 'running', actor: 'user', bumpGeneration: true, keepClaim: true },
    );
    if (!row) throw machineNotFound();
    return finishStart(app, { machine: row, token });
  });
}

/** Throws `forbidden` on a host that does not admit the account by now, `insufficient_balance` on an empty wallet. */
async function checkMayRun(app: App, machine: MachineRow): Promise<void> {
  const account = await getAccount(app.db, machine.account_id);
  if (!admitsAccount(app, machine, account)) throw emulatedOnly();
  await checkBalance(app, account);
}

/** From `provisioning` to `running`, or back to `stopped`: the second half of a start, also after a crash. */
export async function finishStart(app: App, claim: Claim): Promise<MachineRow> {
  try {
    return await makeRunning(app, claim);
  } catch (error) {
    if (!(error instanceof ClaimLost)) await undoStart(app, claim);
    throw error;
  }
}

async function undoStart(app: App, { machine, token }: Claim): Promise<void> {
  try {
    const row = await setDesired(app, machine.id, token, 'stopped');
    await finishStop(app, { machine: row, token });
  } catch (error) {
    app.log.warn({ err: error, machine_id: machine.id }, 'a failed start is left to the reconciler');
    app.reconcileSoon();
  }
}
