// Stop: graceful on the host (10 s, then hard); the disk stays, the memory is given back, running jobs are lost.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { settleJobsOf } from '../execs/settle.ts';
import { type Claim, withMachineClaim } from './claim.ts';
import { ensureOnHost } from './ensure.ts';
import { machineNotFound } from './refusals.ts';
import { changeState, findMachine, setDesired } from './store.ts';
import { checkAction, checkNotLeaving } from './transition.ts';

/** Stops a machine of the account; a stopped one stays as it is. Throws `conflict`, `host_unavailable`. */
export async function stopMachine(
  app: App,
  accountId: string,
  id: string,
  actor: ActivityActor = 'user',
): Promise<MachineRow> {
  await findMachine(app, accountId, id);
  return withMachineClaim(app, id, async ({ machine, token }) => {
    checkNotLeaving(machine.desired);
    if (checkAction(machine.state, 'stop') === 'noop') return machine;
    return finishStop(app, { machine: await setDesired(app, id, token, 'stopped', actor), token });
  });
}

/** Stops a claimed machine that is desired stopped. What fails here is tried again by the reconciler. */
export async function finishStop(app: App, { machine, token }: Claim): Promise<MachineRow> {
  await ensureOnHost(app, machine, 'stopped');
  await settleJobsOf(app, machine);
  const row = await changeState(app, machine.id, { token }, { to: 'stopped', desired: 'stopped' });
  if (!row) throw machineNotFound();
  return row;
}
