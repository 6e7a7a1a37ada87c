// The end of a job, written once: every way to learn of it (an answer of the host, an event, the reconciler) comes here.
import type { JobReport } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import { activityOfJob } from '../activity/entries.ts';
import { activityParameter, activityParts } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { EXEC_COLUMNS } from './columns.ts';

/** The end and its entry in the feed, in one statement: once, whoever comes first. */
const endJob = prepare<ExecRow>(
  'end_job',
  `with ended as (
     update execs
     set status = $3, exit_code = $4::int, signal = $5, stdout_bytes = $6::bigint, stderr_bytes = $7::bigint,
       truncated = $8::boolean, finished_at = coalesce($9::timestamptz, now())
     where machine_id = $1 and id = $2 and status = 'running'
     returning ${EXEC_COLUMNS}
   ), ${activityParts({
     source: 'ended',
     entries: '$10',
     metadata: `jsonb_set(entry.metadata, '{timeout_sec}', to_jsonb(source.timeout_sec))`,
   })}
   select * from ended`,
);

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

async function writeEnd(db: Db, report: JobReport): Promise<ExecRow | undefined> {
  const { machine_id, job_id, exit_code } = report;
  // The time-out is in the row only, and the statement puts it in.
  const entry = activityOfJob({ machine_id, exit_code, timeout_sec: 0 });
  const [row] = await endJob(db, [
    ...[machine_id, job_id, report.status, exit_code, report.signal],
    ...[report.stdout_bytes, report.stderr_bytes, report.truncated, report.finished_at],
    activityParameter([entry]),
  ]);
  return row;
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
