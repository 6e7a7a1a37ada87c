// Records the end of a job exactly once. The end may be reported by an answer of the host, by an event of the host, or
// by the reconciler; all of them call this module.
import type { JobReport } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { writeActivity } from '../transitions/effects.ts';
import { activityOfJob } from '../transitions/entries.ts';

/**
 * The transactions that are recording the end of a job right now. Key: `machine id/job id`. A second caller with the
 * same job waits for the running transaction instead of starting its own.
 */
const underWay = new WeakMap<Db, Map<string, Promise<ExecRow | undefined>>>();

/**
 * Records how a job ended. Returns the new row, or undefined when the job still runs, was recorded as ended before, or
 * is not in the database.
 */
export async function settleJob(db: Db, report: JobReport): Promise<ExecRow | undefined> {
  if (report.status === 'running') return undefined;
  const ends = underWay.get(db) ?? new Map<string, Promise<ExecRow | undefined>>();
  underWay.set(db, ends);
  const key = `${report.machine_id}/${report.job_id}`;
  const known = ends.get(key);
  if (known) return known;
  const end = writeEnd(db, report).finally(() => ends.delete(key));
  ends.set(key, end);
  return end;
}

/**
 * Writes the end of the job and its activity entry in one transaction. Does nothing when the end is recorded already.
 */
function writeEnd(db: Db, report: JobReport): Promise<ExecRow | undefined> {
  return inTransaction(db, async (tx) => {
    const [row] = await endJob(tx, report);
    // The commit is sent before the entry is answered. If the entry cannot be written, the commit throws its error.
    if (row) writeActivity(tx, row.account_id, [activityOfJob(row)]).catch(() => undefined);
    return row;
  });
}

const endJob = statement((db, report: JobReport) =>
  db
    .updateTable('execs')
    .set({
      status: report.status,
      exit_code: report.exit_code,
      signal: report.signal,
      stdout_bytes: report.stdout_bytes,
      stderr_bytes: report.stderr_bytes,
      truncated: report.truncated,
      output_expired: report.output_expired,
      finished_at: sql<Date>`coalesce(${report.finished_at}::timestamptz, now())`,
    })
    .where('machine_id', '=', report.machine_id)
    .where('id', '=', report.job_id)
    .where('status', '=', 'running')
    .returningAll(),
);

/** Records that the host has dropped the output of these jobs of a machine. Skips running jobs. */
export async function expireOutputs(db: Db, machineId: string, jobIds: readonly string[]): Promise<void> {
  await db
    .updateTable('execs')
    .set({ output_expired: true })
    .where('machine_id', '=', machineId)
    .where((is) => is('id', '=', is.fn.any(is.val([...jobIds]))))
    .where('status', '<>', 'running')
    .execute();
}

/**
 * Sets a running job to `lost` because its host does not know it. Such a job never ran, so it gets no activity entry.
 */
export async function loseJob(db: Db, machineId: string, jobId: string): Promise<void> {
  await db
    .updateTable('execs')
    .set({ status: 'lost', finished_at: sql<Date>`now()` })
    .where('machine_id', '=', machineId)
    .where('id', '=', jobId)
    .where('status', '=', 'running')
    .execute();
}

/**
 * Records the results of jobs that ended shortly before their machine did. Call this before `loseRunningJobs`, which
 * would set them to `lost`. Asks the host only when the machine has running jobs. If the host does not answer, nothing
 * changes.
 */
export async function settleJobsOf(app: App, machine: MachineRow): Promise<void> {
  const running = await app.db
    .selectFrom('execs')
    .select('id')
    .where('machine_id', '=', machine.id)
    .where('status', '=', 'running')
    .execute();
  if (running.length === 0) return;
  try {
    const client = app.hosts.client(machine.host_id);
    await Promise.all(
      running.map(async ({ id }) => {
        const report = await client.getJob(machine.id, id, 0);
        if (report) await settleJob(app.db, report);
      }),
    );
  } catch (error) {
    app.log.debug({ err: error, machine_id: machine.id }, 'the last jobs of a machine could not be asked for');
  }
}
