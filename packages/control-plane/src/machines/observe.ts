// What a host saw of a machine, applied to its row: the one function for events as they come and for the reconciler.
// Only a running machine can change by itself; everything else is the work of whoever holds the claim.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { settleJobsOf } from '../execs/settle.ts';
import { changeState } from './store.ts';
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
  const reason = (report.reason ?? 'The virtual machine ended without a reason.').slice(0, MAX_REASON);
  const changed = await changeState(
    app,
    row.id,
    { observedGeneration: report.generation, from: ['running'] },
    report.status === 'failed'
      ? { to: 'error', error: reason }
      : { to: 'stopped', desired: 'stopped', actor: 'system:host' },
  );
  if (changed) app.log.warn({ machine_id: row.id, state: changed.state, reason: report.reason }, 'a machine ended');
  return changed !== undefined;
}

/** Marks a running machine that its host does not know any more. */
export async function loseMachine(app: App, id: string, generation: number): Promise<boolean> {
  const changed = await changeState(
    app,
    id,
    { observedGeneration: generation, from: ['running', 'stopped'] },
    { to: 'error', error: 'The host has lost it: neither its virtual machine nor its disk is there any more.' },
  );
  return changed !== undefined;
}
