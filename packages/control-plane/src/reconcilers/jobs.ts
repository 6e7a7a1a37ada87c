// Finds jobs that ended while no replica was listening to the host's events. Asks each host which jobs of a machine
// still run, and then asks for each missing job by its id.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { loseJob, settleJob } from '../execs/settle.ts';

const WIDTH = 8;

type RunningJob = { id: string; machine_id: string; host_id: string; isOld: boolean };

/**
 * Records the end of every job that its host reports as ended. If a host does not know a job 30 s after the job was
 * created, the job is recorded as lost.
 */
export async function settleRunningJobs(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const jobs = await app.db
    .selectFrom('execs')
    .innerJoin('machines', 'machines.id', 'execs.machine_id')
    .select(['execs.id', 'execs.machine_id', 'machines.host_id'])
    .select(
      sql<boolean>`execs.created_at < now() - ${app.config.timing.jobLostMs} * interval '1 millisecond'`.as('isOld'),
    )
    .where('execs.status', '=', 'running')
    .where('machines.host_id', 'in', connected)
    .execute();
  const byMachine = Map.groupBy(jobs, (job) => job.machine_id);
  await forEachBounded([...byMachine.values()], WIDTH, async (ofMachine) => {
    try {
      await settleMachine(app, ofMachine);
    } catch (err) {
      app.log.warn({ err, machine_id: ofMachine[0]?.machine_id }, 'the jobs of a machine could not be asked for');
    }
  });
}

async function settleMachine(app: App, jobs: readonly RunningJob[]): Promise<void> {
  const [first] = jobs;
  if (!first) return;
  const reports = await app.hosts.client(first.host_id).listRunningJobs(first.machine_id);
  const running = new Set(reports?.map((report) => report.job_id));
  for (const job of jobs) if (!running.has(job.id)) await settleOne(app, job);
}

async function settleOne(app: App, job: RunningJob): Promise<void> {
  const report = await app.hosts.client(job.host_id).getJob(job.machine_id, job.id, 0);
  if (report) await settleJob(app.db, report);
  else if (job.isOld) await loseJob(app.db, job.machine_id, job.id);
}
