// What a host saw of a machine, applied to its row: for events as they come, and for the reconciler. Only a running
// machine changes by itself; everything else is done by an operation.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { MachineState } from '@sandbar/contract/machine.ts';
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

/** How a machine ended by itself. */
type End = { state: 'stopped' | 'error'; error: string | null };

/**
 * Applies a report: `failed` makes a running machine `error` with the reason, `stopped` makes it `stopped`. A report of
 * an older generation, or of a machine with an operation under way, changes nothing. Returns whether the row changed.
 */
export async function observeMachine(app: App, hostId: string, report: MachineReport): Promise<boolean> {
  if (report.status !== 'failed' && report.status !== 'stopped') return false;
  const row = await getMachineRow(app.db, report.machine_id);
  if (row?.host_id !== hostId || row.state !== 'running' || row.generation > report.generation) return false;
  await settleJobsOf(app, row);
  return endMachine(app, row.id, { from: ['running'], generation: report.generation }, endOf(report));
}

/** Looks into a report that says that a machine ended. Reports of machines that go on mean nothing. */
export async function noticeReport(app: App, hostId: string, report: MachineReport): Promise<void> {
  if (report.status !== 'failed' && report.status !== 'stopped') return;
  const row = await getMachineRow(app.db, report.machine_id);
  if (row?.host_id === hostId && row.state === 'running') await confirmEnded(app, row);
}

/**
 * Asks again while no operation is under way, and records the end of a machine. The first report may be of before the end
 * of an operation (a restore ends the virtual machine for a moment). A host may also have forgotten its last change (its
 * power failed before that was on disk): what it says now is its newest word.
 */
export async function confirmEnded(app: App, row: MachineRow): Promise<void> {
  if (!(await isUntouched(app, row))) return;
  const report = await app.hosts.client(row.host_id).getMachine(row.id);
  if (!report || !(await isUntouched(app, row))) return;
  await observeMachine(app, row.host_id, { ...report, generation: Math.max(report.generation, row.generation) });
}

/** Whether no operation has begun since the machine's row was read. */
export async function isUntouched(app: App, row: MachineRow): Promise<boolean> {
  const view = await selectMachineViews(app.db).where('id', '=', row.id).executeTakeFirst();
  return view?.generation === row.generation && view.operation_kind === null;
}

/** Marks a machine that its host does not know any more. Returns whether the row changed. */
export function loseMachine(app: App, id: string, generation: number): Promise<boolean> {
  return endMachine(app, id, { from: ['running', 'stopped'], generation }, { state: 'error', error: LOST_MACHINE });
}

function endOf({ status, reason }: MachineReport): End {
  if (status === 'stopped') return { state: 'stopped', error: null };
  return { state: 'error', error: (reason ?? 'The virtual machine ended without a reason.').slice(0, MAX_REASON) };
}

/** Records an end that nobody asked for, unless an operation is under way or the row is of a later generation. */
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
 * The machine of an operation as it is by now: asks its host first, so that the operation does not bring back a machine
 * that ended or was lost unseen. Throws `ClaimLost`, `host_unavailable`.
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
