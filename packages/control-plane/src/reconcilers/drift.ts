// Compares the machines of each host with their rows. Finds machines that ended without being noticed, machines that
// the host has lost, and machines that no row knows. Rows and hosts change during the comparison, so every difference
// is checked a second time before anything is changed.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { MachineRow } from '../db/tables.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { confirmEnded, isUntouched, loseMachine } from '../machines/observe.ts';
import { getMachineRow } from '../machines/store.ts';
import { attempt } from './attempt.ts';
import { createOutputWatch, type OutputWatch } from './outputs.ts';
import type { Compared, Comparison } from './rounds.ts';
import { createSightings, type Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

const WIDTH = 8;

/** What an earlier comparison of the same host has seen. */
type Memory = { unknown: Sightings; outputs: OutputWatch };
/** The columns that a comparison needs. It reads the whole row only of a machine that differs. */
type Row = Pick<MachineRow, 'id' | 'state'>;

/** Compares the machines of a host with their rows. */
export function machineComparison(app: App): Comparison {
  const { reconcileMs, compareMs } = app.config.timing;
  return {
    name: 'machines',
    pauseMs: { shortest: reconcileMs, longest: compareMs.machines },
    begin: (hostId) => {
      const memory = { unknown: createSightings(), outputs: createOutputWatch(app) };
      return () => compareMachines(app, hostId, memory).finally(memory.unknown.endPass);
    },
  };
}

/** A failure concerning one machine is logged. */
async function compareMachines(app: App, hostId: string, { unknown, outputs }: Memory): Promise<Compared> {
  const reports = await app.hosts.client(hostId).listMachines();
  const rows: Row[] = await app.db
    .selectFrom('machines')
    .select(['id', 'state'])
    .where('host_id', '=', hostId)
    .where('state', '<>', 'destroyed')
    .execute();
  const rowsById = new Map(rows.map((row) => [row.id, row]));
  const reportedIds = new Set(reports.map((report) => report.machine_id));
  let isSettled = true;
  const settle = async (id: string, work: () => Promise<unknown>) => {
    isSettled = false;
    await attempt(app, { machine_id: id }, work);
  };
  const compare = async (report: MachineReport) => {
    const id = report.machine_id;
    const row = rowsById.get(id);
    if (!row) {
      // A machine that was overdue before may belong to another database, and stays.
      if (!unknown.isOverdue(id, app.config.timing.unknownGraceMs)) isSettled = false;
      else await attempt(app, { machine_id: id }, () => removeUnknown(app, hostId, report));
    } else if (differs(row, report)) await settle(id, () => keepState(app, report));
    if (row && report.output_revision !== null) {
      await attempt(app, { machine_id: id }, () => outputs.check(hostId, report));
    }
  };
  await forEachBounded(reports, WIDTH, compare);
  const missing = rows.filter(
    (row) => !reportedIds.has(row.id) && (row.state === 'running' || row.state === 'stopped'),
  );
  await forEachBounded(missing, WIDTH, ({ id }) => settle(id, () => confirmLost(app, id)));
  return { size: reports.length, isSettled };
}

function differs({ state }: Row, report: MachineReport): boolean {
  if (state === 'running') return report.status === 'failed' || report.status === 'stopped';
  return (state === 'stopped' || state === 'error') && isOn(report);
}

async function keepState(app: App, report: MachineReport): Promise<void> {
  const row = await getMachineRow(app.db, report.machine_id);
  if (row?.state === 'running') await confirmEnded(app, row);
  else if (row?.state === 'stopped' || row?.state === 'error') await keepStopped(app, row, report);
}

/**
 * Deletes a machine on its host if no account has it. A machine's row is inserted before its host is told of the
 * machine, and this function looks for the row again right before the delete. Returns false, and deletes nothing, if
 * there is a row that is not destroyed or if the machine may belong to another database.
 */
export async function removeUnknown(app: App, hostId: string, report: MachineReport): Promise<boolean> {
  const { machine_id: id, generation } = report;
  const row = await app.db.selectFrom('machines').select('state').where('id', '=', id).executeTakeFirst();
  if (row && row.state !== 'destroyed') return false;
  const host = await app.db.selectFrom('hosts').select('created_at').where('id', '=', hostId).executeTakeFirst();
  if (!row && !(host && isOfThisDatabase(id, host.created_at))) return false;
  await app.hosts.client(hostId).deleteMachine(id, generation + 1);
  app.log.warn({ machine_id: id }, 'removed a machine from its host that no account has');
  return true;
}

const isOn = (report: MachineReport | undefined): boolean =>
  report?.status === 'running' || report?.status === 'starting';

/**
 * Stops the VM of a machine whose row says `stopped` or `error`. The VM may still run because the host did not finish a
 * stop, or because a start arrived late. Asks the host again first, because the stop may be newer than `report`. If
 * another operation begins meanwhile, it has a later generation, and the host ignores this stop.
 */
export async function keepStopped(app: App, row: MachineRow, report: MachineReport): Promise<void> {
  if (!isOn(report) || !(await isUntouched(app, row))) return;
  if (row.generation < report.generation) return;
  if (isOn(await app.hosts.client(row.host_id).getMachine(row.id))) await ensureOnHost(app, row, 'stopped');
}

/** Asks the host for the machine again, and sets the machine to `error` if the host still does not have it. */
export async function confirmLost(app: App, id: string): Promise<void> {
  const row = await getMachineRow(app.db, id);
  if (!row || (await app.hosts.client(row.host_id).getMachine(id))) return;
  if (!(await isUntouched(app, row))) return;
  if (await loseMachine(app, id, row.generation)) app.log.warn({ machine_id: id }, 'the host has lost a machine');
}
