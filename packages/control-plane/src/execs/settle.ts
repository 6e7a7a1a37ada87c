// The end of a job, written once: every way to learn of it (an answer of the host, an event, the reconciler) comes here.
import type { JobReport } from '@sandbar/contract/host-api.ts';
import { sql, type UpdateObject } from 'kysely';
import { activityOfJob } from '../activity/entries.ts';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import type { Database, ExecRow, MachineRow } from '../db/tables.ts';

/** Records how a job ended. Undefined when it runs still, was settled before, or is not known. */
export async function settleJob(db: Db, report: JobReport): Promise<ExecRow | undefined> {
  if (report.status === 'running') return undefined;
  return endJob(db, report.machine_id, report.job_id, {
    status: report.status,
    exit_code: report.exit_code,
    signal: report.signal,
    stdout_bytes: report.stdout_bytes,
    stderr_bytes: report.stderr_bytes,
    truncated: report.truncated,
    finished_at: report.finished_at ? new Date(report.finished_at) : sql<Date>`now()`,
  });
}

/** Records that a running job was never known to its host. It never ran, so the feed has nothing to tell. */
export async function loseJob(db: Db, machineId: string, jobId: string): Promise<void> {
  await db
    .updateTable('execs')
    .set({ status: 'lost', finished_at: sql<Date>`now()` })
    .where('machine_id', '=', machineId)
    .where('id', '=', jobId)
    .where('status', '=', 'running')
    .execute();
}

/** The end and its entry in the feed, in one transaction: once, whoever comes first. */
function endJob(
  db: Db,
  machineId: string,
  jobId: string,
  end: UpdateObject<Database, 'execs'>,
): Promise<ExecRow | undefined> {
  return db.transaction().execute(async (tx) => {
    const row = await tx
      .updateTable('execs')
      .set(end)
      .where('machine_id', '=', machineId)
      .where('id', '=', jobId)
      .where('status', '=', 'running')
      .returningAll()
      .executeTakeFirst();
    if (row) await writeActivity(tx, row.account_id, [activityOfJob(row)]);
    return row;
  });
}

/**
 * Before a machine's running jobs are written off: those that ended in time keep their result. Asks the host only when
 * there is a running job; a host that does not answer changes nothing.
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
