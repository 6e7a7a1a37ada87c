// The restore operation: the host resets the root disk of a machine to one of the machine's snapshots.
//
//   running --host stops the VM, resets the disk, boots--> running      host refused: the machine is unchanged
//      \--disk was reset, but the VM does not boot--> stopped
//   stopped --host resets the disk--> stopped
//
// When the host does not answer, it may have reset the disk already. The old disk is gone then, so the restore is not
// undone but repeated. The same holds when anything fails after the host has done it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { App } from '../../app.ts';
import { bringSnapshot } from '../../blobs/bring.ts';
import type { MachineRow } from '../../db/tables.ts';
import { loseRunningJobs } from '../../execs/lose.ts';
import { settleJobsOf } from '../../execs/settle.ts';
import { HostUnavailable } from '../../hosts/client.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { noticeEnd } from '../../machines/observe.ts';
import { act, type Definition, machineOf, type Recording, type Work } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';

type Restored = { report: MachineReport; endedJobs: readonly string[] };

export const RESTORE: Definition = {
  act: act(restore, record),
  isRefusal,
  undo: act(stopWhenEnded, async ({ steps, ...recording }, hasEnded) => {
    if (hasEnded) await steps.changeMachine(machineOf(recording), { state: 'stopped' });
  }),
};

/** Returns false if the disk may already be reset. An answer with which the host refuses always counts. */
function isRefusal(error: unknown, { operation, progress }: Pick<Work, 'operation' | 'progress'>): boolean {
  if (progress === 'done by the host') return false;
  const isFirst = operation.attempts === 1;
  if (error instanceof HostUnavailable) return isFirst && !error.mayHaveActed;
  // A bug. It says nothing about what the host has done.
  if (!(error instanceof ServiceError)) return isFirst && progress === undefined;
  return true;
}

async function restore(app: App, work: Work): Promise<Restored> {
  // Only the first attempt asks whether the machine ended by itself. At later attempts the machine may be down because
  // the earlier attempt stopped it in order to reset its disk.
  const machine = work.operation.attempts === 1 ? await noticeEnd(app, work) : machineOf(work);
  if (machine.state === 'error') throw new ServiceError('conflict', 'The machine ended, and is in error.');
  const before = await listRunningJobs(app, machine.id);
  const restoreSnapshotId = snapshotOf(work);
  await bringSnapshot(app, machine.host_id, restoreSnapshotId);
  work.progress = 'asked the host';
  const report = await ensureOnHost(app, machine, desiredOf(machine), { restoreSnapshotId });
  work.progress = 'done by the host';
  const endedJobs = before.length === 0 ? [] : await jobsThatEnded(app, machine, before);
  return { report, endedJobs };
}

async function record({ tx, steps, operation, ...recording }: Recording, restored: Restored): Promise<void> {
  const machine = machineOf({ ...recording, operation });
  steps.tell(await loseRunningJobs(tx, machine.id, restored.endedJobs));
  const { isolation, private_ip } = restored.report;
  if (machine.state === 'running') {
    await steps.changeMachine(machine, { isolation, private_ip, started_at: sql<Date>`now()` });
  }
  const metadata = { snapshot_id: snapshotOf({ operation }) };
  steps.tell([{ action: 'snapshot.restored', actor: operation.actor, machineId: machine.id, metadata }]);
}

/**
 * Runs after the host refused a restore. If the VM of a running machine is down now, tells the host to keep the machine
 * stopped. Returns true if the VM was down.
 */
async function stopWhenEnded(app: App, work: Work): Promise<boolean> {
  const machine = machineOf(work);
  if (machine.state !== 'running') return false;
  const report = await app.hosts.client(machine.host_id).getMachine(machine.id);
  if (report?.status !== 'stopped' && report?.status !== 'failed') return false;
  const bumped = await bumpForUndo(app, work);
  await ensureOnHost(app, bumped, 'stopped');
  await settleJobsOf(app, bumped);
  return true;
}

const desiredOf = ({ state }: MachineRow) => (state === 'running' ? 'running' : 'stopped');

function snapshotOf({ operation }: Pick<Work, 'operation'>): string {
  if (operation.snapshot_id === null) throw new Error(`The restore ${operation.id} has no snapshot.`);
  return operation.snapshot_id;
}

/** Returns the ids in `before` (jobs that ran before the restore) that the host does not report as running any more. */
async function jobsThatEnded(app: App, machine: MachineRow, before: readonly string[]): Promise<string[]> {
  await settleJobsOf(app, machine);
  const reports = await app.hosts.client(machine.host_id).listRunningJobs(machine.id);
  const running = new Set(reports?.map((report) => report.job_id));
  return before.filter((id) => !running.has(id));
}

async function listRunningJobs(app: App, machineId: string): Promise<string[]> {
  const query = app.db.selectFrom('execs').select('id').where('machine_id', '=', machineId);
  const rows = await query.where('status', '=', 'running').execute();
  return rows.map((row) => row.id);
}
