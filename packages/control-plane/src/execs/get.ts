// Reads the status of a job and cancels a job. For a running job this module asks the host, which answers a waiting
// call as soon as the job ends. If the host does not answer a read, the status from the database is returned.
import type { Exec } from '@sandbar/contract/exec.ts';
import { JOB_STATE_TABLE } from '@sandbar/contract/exec-states.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { JobWaits } from './job-waits.ts';
import { toExec } from './record.ts';
import { settleJob } from './settle.ts';
import { actOnStartedJob } from './started-job.ts';
import { findExec } from './store.ts';

type ExecId = { accountId: string; machineId: string; execId: string };

/** Returns the job, after waiting up to `waitMs` milliseconds for its end. Throws `not_found`. */
export async function getExec(
  app: App,
  waits: JobWaits,
  id: ExecId,
  waitMs: number,
  signal: AbortSignal,
): Promise<Exec> {
  const find = () => findExec(app, id.accountId, id.machineId, id.execId);
  const { exec, hostId } = await waits.find(id.accountId, waitMs, find);
  if (exec.status !== 'running') return toExec(exec);
  const reported = await waits.end(exec, hostId, waitMs, signal);
  if (!reported) return settledOrPresent(app, id, undefined);
  return toExec(await reported.row(), { report: reported.report });
}

/**
 * Asks the host to end the job: it sends TERM, and KILL after 5 s. A job that has ended already is returned unchanged.
 * Throws `not_found`, `host_unavailable`.
 */
export async function cancelExec(app: App, id: ExecId): Promise<Exec> {
  const found = await findExec(app, id.accountId, id.machineId, id.execId);
  const { exec, hostId } = found;
  if (JOB_STATE_TABLE[exec.status].cancel === 'noop') return toExec(exec);
  const report = await actOnStartedJob(app, found, () => app.hosts.client(hostId).cancelJob(exec.machine_id, exec.id));
  if (report?.status === 'running') return toExec(exec, { report });
  return settledOrPresent(app, id, report);
}

/**
 * Records the end of the job from the host's report and returns the job. If another caller has recorded the end
 * already, reads the row again.
 */
async function settledOrPresent(app: App, id: ExecId, report: JobReport | undefined): Promise<Exec> {
  const settled = report && (await settleJob(app.db, report));
  if (settled) return toExec(settled);
  const { exec } = await findExec(app, id.accountId, id.machineId, id.execId);
  return toExec(exec);
}
