// Updates a machine's row when its host reports that the machine ended by itself. The event listener and the reconciler
// use this. Only a running machine can change by itself; every other change is made by an operation.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { settleJobsOf } from '../execs/settle.ts';
import type { Work } from '../operations/definition.ts';
import { machineOf } from '../operations/definition.ts';
import { lockUnfinished, updateClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { getMachineRow, lockMachine, selectMachineViews } from './store.ts';

const MAX_REASON = 1000;
const LOST_MACHINE = 'The host has lost it: neither its virtual machine nor its disk is there any more.';

/** The new state and error of a machine that ended by itself. */
type End = { state: 'stopped' | 'error'; error: string | null };

/**
 * Applies a host's report: `failed` sets a running machine to `error` with the reason, `stopped` sets it to `stopped`.
 * Ignores a report of an older generation, and a machine that has an unfinished operation. Returns true if the row
 * changed.
 */
export async function observeMachine(app: App, hostId: string, report: MachineReport): Promise<boolean> {
  if (report.status !== 'failed' && report.status !== 'stopped') return false;
  const row = await getMachineRow(app.db, report.machine_id);
  if (row?.host_id !== hostId || row.state !== 'running' || row.generation > report.generation) return false;
  await settleJobsOf(app, row);
  return endMachine(app, row.id, { from: ['running'], generation: report.generation }, endOf(report));
}

/** Handles an event of the host that says that a machine ended. Ignores all other reports. */
export async function noticeReport(app: App, hostId: string, report: MachineReport): Promise<void> {
  if (report.status !== 'failed' && report.status !== 'stopped') return;
  const row = await getMachineRow(app.db, report.machine_id);
  if (row?.host_id === hostId && row.state === 'running') await confirmEnded(app, row);
}

/**
 * Asks the host about a machine that seems to have ended, and records the end if the host confirms it. Does nothing
 * while the machine has an unfinished operation.
 *
 * The host is asked because the report that the caller got may be outdated: a restore stops the VM for a moment, for
 * example. The report's generation may also be older than the row's, if the host lost power before it had saved the
 * newer one. The host's answer is current, so it is treated as a report of the row's generation.
 */
export async function confirmEnded(app: App, row: MachineRow): Promise<void> {
  if (!(await isUntouched(app, row))) return;
  const report = await app.hosts.client(row.host_id).getMachine(row.id);
  if (!report || !(await isUntouched(app, row))) return;
  await observeMachine(app, row.host_id, { ...report, generation: Math.max(report.generation, row.generation) });
}

/**
 * Returns true if the machine still has the generation of `row` and no unfinished operation. The caller read `row`
 * earlier.
 */
export async function isUntouched(app: App, row: MachineRow): Promise<boolean> {
  const view = await selectMachineViews(app.db).where('id', '=', row.id).executeTakeFirst();
  return view?.generation === row.generation && view.operation === null;
}

/** Sets a machine to `error` because its host does not know it any more. Returns true if the row changed. */
export function loseMachine(app: App, id: string, generation: number): Promise<boolean> {
  return endMachine(app, id, { from: ['running', 'stopped'], generation }, { state: 'error', error: LOST_MACHINE });
}

function endOf({ status, reason }: MachineReport): End {
  if (status === 'stopped') return { state: 'stopped', error: null };
  return { state: 'error', error: (reason ?? 'The virtual machine ended without a reason.').slice(0, MAX_REASON) };
}

/**
 * Records that a machine ended by itself. Does nothing if an operation is unfinished, the row has a later generation,
 * or its state is not in `from`. Returns true if the row changed.
 */
async function endMachine(
  app: App,
  id: string,
  { from, generation }: { from: readonly MachineState[]; generation: number },
  end: End,
): Promise<boolean> {
  const ended = await inTransaction(app.db, async (tx) => {
    const [row, unfinished] = await Promise.all([lockMachine(tx, id), lockUnfinished(tx, { machineId: id })]);
    if (!row || unfinished.length > 0 || row.generation > generation || !from.includes(row.state)) return undefined;
    const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:host' } as const;
    return transition(app, tx, scope, (steps) => steps.changeMachine(row, end));
  });
  if (ended) app.log.warn({ machine_id: id, state: ended.state, reason: end.error }, 'a machine ended');
  return ended !== undefined;
}

/**
 * Asks the host for an operation's machine before the operation acts on it. If the machine has ended or is lost,
 * records that first, so that the operation does not start it again. Returns the current row. Throws `ClaimLost`,
 * `host_unavailable`.
 */
export async function noticeEnd(app: App, work: Work): Promise<MachineRow> {
  const machine = machineOf(work);
  if (machine.state !== 'running' && machine.state !== 'stopped') return machine;
  const report = await app.hosts.client(machine.host_id).getMachine(machine.id);
  const hasEnded = report && machine.state === 'running' && (report.status === 'failed' || report.status === 'stopped');
  if (report && !hasEnded) return machine;
  if (report) await settleJobsOf(app, machine);
  const end: End = report ? endOf(report) : { state: 'error', error: LOST_MACHINE };
  const ended = await inTransaction(app.db, async (tx) => {
    const [row] = await Promise.all([
      lockMachine(tx, machine.id),
      updateClaimed(tx, work.claimed, { undoing: work.operation.undoing }),
    ]);
    if (!row) throw new Error('a machine went while an operation of its own was under way');
    const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:host' } as const;
    return transition(app, tx, scope, (steps) => steps.changeMachine(row, end));
  });
  app.log.warn({ machine_id: machine.id, state: ended.state, reason: end.error }, 'a machine ended');
  return ended;
}
