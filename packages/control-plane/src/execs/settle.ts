// The end of a job, written once: every way to learn of it (an answer of the host, an event, the reconciler) comes here.
import type { JobReport } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { writeActivity } from '../transitions/effects.ts';
import { activityOfJob } from '../transitions/entries.ts';

/** Ends that are being written now: whoever learns of one meanwhile waits for it, instead of asking the database again. */
const underWay = new WeakMap<Db, Map<string, Promise<ExecRow | undefined>>>();

/** Records how a job ended. Undefined when it runs still, was settled before, or is not known. */
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

/** The end and its entry in the feed: once, whoever comes first. */
function writeEnd(db: Db, report: JobReport): Promise<ExecRow | undefined> {
  return inTransaction(db, async (tx) => {
    const [row] = await endJob(tx, report);
    if (row) await writeActivity(tx, row.account_id, [activityOfJob(row)]);
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
      finished_at: sql<Date>`coalesce(${report.finished_at}::timestamptz, now())`,
    })
    .where('machine_id', '=', report.machine_id)
    .where('id', '=', report.job_id)
    .where('status', '=', 'running')
    .returningAll(),
);

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
