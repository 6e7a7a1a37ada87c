// Status of a job and its cancellation. A running job is asked for at its host, where a wait ends the moment the job
// does; when the host does not answer, what the database knows is the answer.
import { type Exec, JOB_STATE_TABLE } from '@sandbar/contract/exec.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { ExecRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { toExec } from './record.ts';
import { settleJob } from './settle.ts';
import { findExec } from './store.ts';

type ExecId = { accountId: string; machineId: string; execId: string };

/** The job, after waiting up to `waitMs` for its end. Throws `not_found`. */
export async function getExec(app: App, id: ExecId, waitMs: number, signal: AbortSignal): Promise<Exec> {
  const { exec, hostId } = await findExec(app, id.accountId, id.machineId, id.execId);
  if (exec.status !== 'running') return toExec(exec);
  const report = await askHost(app, hostId, exec, waitMs, signal);
  if (report && report.status === 'running') return toExec(exec, { report });
  return settledOrPresent(app, id, report);
}

async function askHost(app: App, hostId: string, exec: ExecRow, waitMs: number, signal: AbortSignal) {
  try {
    const ending = AbortSignal.any([signal, app.closing]);
    return await app.hosts.client(hostId).getJob(exec.machine_id, exec.id, waitMs, ending);
  } catch (error) {
    if (error instanceof HostUnavailable) return undefined;
    throw error;
  }
}

/** Asks for the end of the job (TERM, then KILL after 5 s). An ended job is answered as it is. */
export async function cancelExec(app: App, id: ExecId): Promise<Exec> {
  const { exec, hostId } = await findExec(app, id.accountId, id.machineId, id.execId);
  if (JOB_STATE_TABLE[exec.status].cancel === 'noop') return toExec(exec);
  const report = await app.hosts.client(hostId).cancelJob(exec.machine_id, exec.id);
  if (report && report.status === 'running') return toExec(exec, { report });
  return settledOrPresent(app, id, report);
}

/** The row after a report of the end, which somebody else may have settled in the meantime. */
async function settledOrPresent(app: App, id: ExecId, report: JobReport | undefined): Promise<Exec> {
  const settled = report && (await settleJob(app.db, report));
  if (settled) return toExec(settled);
  const { exec } = await findExec(app, id.accountId, id.machineId, id.execId);
  return toExec(exec);
}
