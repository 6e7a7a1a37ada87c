// Lists the jobs of a machine. The byte counts of running jobs (at most 16 a machine) are read from the host. If the
// host does not answer, the counts from the database are returned.
import type { Exec } from '@sandbar/contract/exec.ts';
import type { JobStatus } from '@sandbar/contract/exec-states.ts';
import type { App } from '../app.ts';
import type { ExecRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { findMachine } from '../machines/store.ts';
import { fetchPage, readPage } from '../paging.ts';
import { toExec } from './record.ts';
import { settleJob } from './settle.ts';

type ListQuery = { status?: JobStatus; page_size?: number; cursor?: string };

/**
 * Returns one page of a machine's jobs, newest first. Throws `not_found` for the machine, `validation_error` for an
 * invalid cursor.
 */
export async function listExecs(
  app: App,
  accountId: string,
  machineId: string,
  query: ListQuery,
): Promise<{ execs: Exec[]; next_cursor?: string }> {
  const key = ['execs', accountId, machineId, query.status];
  const page = readPage(app.config.secret, query, key);
  const machine = await findMachine(app, accountId, machineId);
  let select = app.db.selectFrom('execs').selectAll().where('machine_id', '=', machine.id);
  if (query.status) select = select.where('status', '=', query.status);
  const { rows, cursor } = await fetchPage(app.config.secret, select, page, key);
  const execs = await Promise.all(rows.map((row) => present(app, machine.host_id, row)));
  return { execs, ...cursor };
}

async function present(app: App, hostId: string, row: ExecRow): Promise<Exec> {
  if (row.status !== 'running') return toExec(row);
  try {
    const report = await app.hosts.client(hostId).getJob(row.machine_id, row.id, 0);
    const settled = report && (await settleJob(app.db, report));
    return toExec(settled ?? row, { report });
  } catch (error) {
    if (error instanceof HostUnavailable) return toExec(row);
    throw error;
  }
}
