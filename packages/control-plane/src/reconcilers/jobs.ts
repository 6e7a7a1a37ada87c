// Finds jobs that ended while no replica was listening to their host's events. Asks the host which jobs of a machine
// still run, and then asks for each missing job by its id.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { loseJob, settleJob } from '../execs/settle.ts';
import { attempt } from './attempt.ts';
import type { Compared, Comparison } from './rounds.ts';

const WIDTH = 8;

type RunningJob = { id: string; machine_id: string; host_id: string; isOld: boolean };

/**
 * Records the end of every job of a host that the host reports as ended. If the host does not know a job 30 s after the
 * job was created, the job is recorded as lost.
 */
export function jobComparison(app: App): Comparison {
  const { reconcileJobsMs, compareMs } = app.config.timing;
  return {
    name: 'jobs',
    pauseMs: { shortest: reconcileJobsMs, longest: compareMs.machines },
    begin: (hostId) => () => settleRunningJobs(app, hostId),
  };
}

async function settleRunningJobs(app: App, hostId: string): Promise<Compared> {
  const jobs = await app.db
    .selectFrom('execs')
    .innerJoin('machines', 'machines.id', 'execs.machine_id')
    .select(['execs.id', 'execs.machine_id', 'machines.host_id'])
    .select(
      sql<boolean>`execs.created_at < now() - ${app.config.timing.jobLostMs} * interval '1 millisecond'`.as('isOld'),
    )
    .where('execs.status', '=', 'running')
    .where('machines.host_id', '=', hostId)
    .execute();
  const byMachine = Map.groupBy(jobs, (job) => job.machine_id);
  let isSettled = true;
  await forEachBounded([...byMachine], WIDTH, ([machineId, ofMachine]) =>
    attempt(app, { machine_id: machineId }, async () => {
      if (!(await settleMachine(app, machineId, hostId, ofMachine))) isSettled = false;
    }),
  );
  return { size: byMachine.size * MACHINE_SIZE, isSettled };
}

/** Each machine with running jobs costs a call to its host, as much as the comparison of many machines. */
const MACHINE_SIZE = 50;

/** Returns false if the host does not know a job yet. */
async function settleMachine(
  app: App,
  machineId: string,
  hostId: string,
  jobs: readonly RunningJob[],
): Promise<boolean> {
  const reports = await app.hosts.client(hostId).listRunningJobs(machineId);
  const running = new Set(reports?.map((report) => report.job_id));
  let isSettled = true;
  for (const job of jobs) if (!running.has(job.id) && !(await settleOne(app, job))) isSettled = false;
  return isSettled;
}

async function settleOne(app: App, job: RunningJob): Promise<boolean> {
  const report = await app.hosts.client(job.host_id).getJob(job.machine_id, job.id, 0);
  if (report) await settleJob(app.db, report);
  else if (job.isOld) await loseJob(app.db, job.machine_id, job.id);
  return report !== undefined || job.isOld;
}
