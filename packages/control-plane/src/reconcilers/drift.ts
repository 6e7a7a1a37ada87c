// Compares the machines of each host with their rows. Finds machines that ended without being noticed, machines that
// the host has lost, and machines that no row knows. Rows and hosts change during the comparison, so every difference
// is checked a second time before anything is changed.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { MachineRow } from '../db/tables.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { confirmEnded, isUntouched, loseMachine } from '../machines/observe.ts';
import { attempt } from './attempt.ts';
import type { OutputWatch } from './outputs.ts';
import type { Sightings } from './sightings.ts';
import { isOfThisDatabase } from './unknown.ts';

const WIDTH = 8;

/**
 * Compares the machines of every connected host with their rows. A failure concerning one host or machine is logged,
 * and the next pass tries again.
 */
export async function compareWithHosts(app: App, unknown: Sightings, outputs: OutputWatch): Promise<void> {
  try {
    for (const hostId of app.hosts.connectedIds()) {
      await attempt(app, { host_id: hostId }, () => compareWithHost(app, hostId, unknown, outputs));
    }
  } finally {
    unknown.endPass();
  }
}

async function compareWithHost(app: App, hostId: string, unknown: Sightings, outputs: OutputWatch): Promise<void> {
  const reports = await app.hosts.client(hostId).listMachines();
  const rows = await app.db
    .selectFrom('machines')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('state', '<>', 'destroyed')
    .execute();
  const rowsById = new Map(rows.map((row) => [row.id, row]));
  const reportedIds = new Set(reports.map((report) => report.machine_id));
  const compare = async (report: MachineReport) => {
    const row = rowsById.get(report.machine_id);
    if (!row) {
      const isOverdue = unknown.isOverdue(`${hostId}/${report.machine_id}`, app.config.timing.unknownGraceMs);
      if (isOverdue) await removeUnknown(app, hostId, report);
    } else if (row.state === 'running') await keepObserved(app, row, report);
    else if (row.state === 'stopped' || row.state === 'error') await keepStopped(app, row, report);
    if (row) await outputs.check(hostId, report);
  };
  await forEachBounded(reports, WIDTH, (report) =>
    attempt(app, { machine_id: report.machine_id }, () => compare(report)),
  );
  const missing = rows.filter(
    (row) => !reportedIds.has(row.id) && (row.state === 'running' || row.state === 'stopped'),
  );
  await forEachBounded(missing, WIDTH, (row) => attempt(app, { machine_id: row.id }, () => confirmLost(app, row)));
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

async function keepObserved(app: App, row: MachineRow, report: MachineReport): Promise<void> {
  if (report.status === 'failed' || report.status === 'stopped') await confirmEnded(app, row);
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
export async function confirmLost(app: App, row: MachineRow): Promise<void> {
  if (await app.hosts.client(row.host_id).getMachine(row.id)) return;
  if (!(await isUntouched(app, row))) return;
  if (await loseMachine(app, row.id, row.generation))
    app.log.warn({ machine_id: row.id }, 'the host has lost a machine');
}
