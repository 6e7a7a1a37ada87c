// What a host saw of a machine, applied to its row: the one function for events as they come and for the reconciler.
// Only a running machine can change by itself; everything else is the work of whoever holds the claim.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { settleJobsOf } from '../execs/settle.ts';
import type { Claim } from './claim.ts';
import { type Change, changeState } from './store.ts';
import { isLeaving } from './transition.ts';

const MAX_REASON = 1000;

/**
 * Applies a report: `failed` makes a running machine `error` with the reason, `stopped` makes it `stopped`. A report of
 * an older generation, or of a machine that somebody works on, changes nothing. Returns whether the row changed.
 */
export async function observeMachine(app: App, hostId: string, report: MachineReport): Promise<boolean> {
  if (report.status !== 'failed' && report.status !== 'stopped') return false;
  const row = await app.db
    .selectFrom('machines')
    .selectAll()
    .where('id', '=', report.machine_id)
    .where('host_id', '=', hostId)
    .executeTakeFirst();
  if (row?.state !== 'running' || isLeaving(row.desired) || row.generation > report.generation) return false;
  await settleJobsOf(app, row);
  const guard = { observedGeneration: report.generation, from: ['running'] } as const;
  const changed = await changeState(app, row.id, guard, endOf(report));
  if (changed) app.log.warn({ machine_id: row.id, state: changed.state, reason: report.reason }, 'a machine ended');
  return changed !== undefined;
}

/** What becomes of a running machine whose host reports that it ended. */
function endOf({ status, reason }: MachineReport): Change {
  if (status === 'stopped') return { to: 'stopped', desired: 'stopped', actor: 'system:host' };
  return { to: 'error', error: (reason ?? 'The virtual machine ended without a reason.').slice(0, MAX_REASON) };
}

/**
 * A claimed machine as it is by now: asks its host before anything is asked of it that would bring back one that ended or
 * was lost unseen. The claim is kept. Throws `ClaimLost`, `host_unavailable`.
 */
export async function noticeEnd(app: App, { machine, token }: Claim): Promise<MachineRow> {
  if (machine.state !== 'running' && machine.state !== 'stopped') return machine;
  const report = await app.hosts.client(machine.host_id).getMachine(machine.id);
  const hasEnded = report && machine.state === 'running' && (report.status === 'failed' || report.status === 'stopped');
  if (report && !hasEnded) return machine;
  if (report) await settleJobsOf(app, machine);
  const end: Change = report ? endOf(report) : { to: 'error', error: LOST_MACHINE };
  const changed = await changeState(app, machine.id, { token }, { ...end, keepClaim: true });
  app.log.warn({ machine_id: machine.id, state: changed?.state, reason: report?.reason }, 'a machine ended');
  return changed ?? machine;
}

const LOST_MACHINE = 'The host has lost it: neither its virtual machine nor its disk is there any more.';

/** Marks a running machine that its host does not know any more. */
export async function loseMachine(app: App, id: string, generation: number): Promise<boolean> {
  const changed = await changeState(
    app,
    id,
    { observedGeneration: generation, from: ['running', 'stopped'] },
    { to: 'error', error: LOST_MACHINE },
  );
  return changed !== undefined;
}
