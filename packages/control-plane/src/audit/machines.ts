// Compares the machines of one host with their rows. Pure functions. Two kinds of differences are not reported: those
// of machines with an unfinished operation, and those that the host will soon report by an event.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { HostRow, MachineRow } from '../db/tables.ts';
import { confirmEnded } from '../machines/observe.ts';
import { confirmLost, keepStopped, removeUnknown } from '../reconcilers/drift.ts';
import { isOfThisDatabase } from '../reconcilers/unknown.ts';
import type { Finding, Mend } from './finding.ts';

/** A machine's row, and whether the machine has an unfinished operation. */
export type AuditedMachine = MachineRow & { isBusy: boolean };

/**
 * Returns the differences. `rows` must contain the host's machines that are not destroyed, and those destroyed machines
 * that the host still reports.
 */
export function compareMachines(
  host: Pick<HostRow, 'id' | 'created_at'>,
  rows: readonly AuditedMachine[],
  reports: readonly MachineReport[],
): Finding[] {
  const reportsById = new Map(reports.map((report) => [report.machine_id, report]));
  const rowsById = new Map(rows.map((row) => [row.id, row]));
  const unknown = reports.flatMap((report) => unknownOnHost(host, rowsById.get(report.machine_id), report));
  const differing = rows
    .filter((row) => row.state !== 'destroyed' && !row.isBusy)
    .flatMap((row) => differenceOf(row, reportsById.get(row.id)));
  return [...unknown, ...differing];
}

function unknownOnHost(
  host: Pick<HostRow, 'id' | 'created_at'>,
  row: AuditedMachine | undefined,
  report: MachineReport,
): Finding[] {
  if (row && row.state !== 'destroyed') return [];
  const id = report.machine_id;
  const about = { area: 'machine', hostId: host.id, subject: id, key: `unknown/${id}` } as const;
  const mend: Mend = {
    fix: 'remove it from its host',
    did: 'removed it from its host',
    run: (app) => removeUnknown(app, host.id, report),
  };
  if (row) return [{ ...about, detail: 'Its host still has it, though it is destroyed.', mend }];
  if (isOfThisDatabase(id, host.created_at)) {
    return [{ ...about, detail: 'Its host has it, and no account does.', mend }];
  }
  const detail =
    'Its host has it, and this database never gave its id away: another database is (or was) used with this host.';
  return [{ ...about, detail }];
}

function differenceOf(row: AuditedMachine, report: MachineReport | undefined): Finding[] {
  const difference = describeDifference(row, report);
  if (!difference) return [];
  const { detail, mend } = difference;
  const key = `machine/${row.id}/${row.generation}/${row.state}/${detail}`;
  return [{ area: 'machine', hostId: row.host_id, subject: row.id, key, detail, mend }];
}

type Difference = { detail: string; mend?: Mend };

function describeDifference(row: AuditedMachine, report: MachineReport | undefined): Difference | undefined {
  if (row.state === 'pending' || row.state === 'provisioning') {
    return { detail: `It is ${row.state}, and no operation of it is under way.` };
  }
  if (row.state === 'error') {
    if (report?.status !== 'running') return undefined;
    const mend = { fix: 'stop it on its host', did: 'stopped it on its host', run: keepStoppedOf(row, report) };
    return { detail: 'It is in error and still runs on its host.', mend };
  }
  if (!report) {
    const mend = { fix: 'mark it as lost', did: 'marked it as lost', run: confirmLostOf(row) };
    return { detail: `It is ${row.state}, and its host does not have it.`, mend };
  }
  if (report.generation > row.generation) {
    return { detail: 'Its host knows of a later change than the database, which seems to be an old copy.' };
  }
  // The status `starting` is not reported: a guest that reboots has this status for a moment, and its machine is still
  // running.
  if (row.state === 'running' && (report.status === 'stopped' || report.status === 'failed')) {
    const mend = { fix: 'record its end', did: 'recorded its end', run: confirmEndedOf(row) };
    return { detail: `It is running, and ${report.status} on its host.`, mend };
  }
  if (row.state === 'stopped' && (report.status === 'running' || report.status === 'starting')) {
    const mend = { fix: 'stop it on its host', did: 'stopped it on its host', run: keepStoppedOf(row, report) };
    return { detail: `It is stopped, and ${report.status} on its host.`, mend };
  }
  return undefined;
}

const confirmLostOf =
  (row: MachineRow): Mend['run'] =>
  (app) =>
    confirmLost(app, row.id);
const confirmEndedOf =
  (row: MachineRow): Mend['run'] =>
  (app) =>
    confirmEnded(app, row);
const keepStoppedOf =
  (row: MachineRow, report: MachineReport): Mend['run'] =>
  (app) =>
    keepStopped(app, row, report);
