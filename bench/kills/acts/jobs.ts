// Starts jobs, reads their whole results, and checks every byte.
import { createHash, randomUUID } from 'node:crypto';
import type { Exec, ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { ask, type ClientContext, contradict, wasEnded } from '../client-context.ts';
import { createContent, ROOT_FOLDER } from '../content.ts';
import type { Disk, Job, Machine, WrittenJob } from '../model.ts';

const WAIT_MS = 20_000;
/** A job that still runs after this time is stuck. The longest job takes about ten seconds. */
const GIVE_UP_MS = 600_000;

/** Where a job writes its file. */
export type Target = { disk: Disk; folder: string };

export const rootOf = ({ disk }: Machine): Target => ({ disk, folder: ROOT_FOLDER });

/** Starts a job that writes known bytes. Its result is read later, by `settleJobs`. */
export async function startWriter(
  context: ClientContext,
  machine: Machine,
  { disk, folder }: Target,
  isLong: boolean,
): Promise<void> {
  const tag = `${context.who}-${context.nextNumber()}`;
  const content = createContent(context.random, { tag, folder, isLong });
  disk.doubtful.add(tag);
  const job: WrittenJob = { ...describe(context, machine, content.command), ...content, tag, disk };
  // Add the job to the list before the request is sent, so that a job whose start was interrupted is checked as well.
  machine.jobs.push(job);
  await submit(context, job);
  context.journal.act(context.who, isLong ? 'long job' : 'job', `${tag} in ${machine.id}`);
}

/**
 * Runs a command that changes nothing in the machine, and returns its output. Returns undefined when a kill or the
 * spend guard ended the job.
 */
export async function runReader(
  context: ClientContext,
  machine: Machine,
  command: string,
): Promise<string | undefined> {
  const job = describe(context, machine, command);
  await submit(context, job);
  const { exec, stdout } = await readResult(context, job);
  if (exec.status === 'exited' && exec.exit_code === 0) return stdout.toString();
  if (await mayBeLost(context, job, exec)) return undefined;
  throw contradict(context, `the job ${command} in ${machine.id} ended as ${JSON.stringify(exec)}: ${stdout}`);
}

/**
 * Reads the results of all jobs of a machine. `isCutShort`: the client stopped or restored the machine while they ran.
 */
export async function settleJobs(context: ClientContext, machine: Machine, isCutShort = false): Promise<void> {
  for (const job of machine.jobs) {
    await settleWriter(context, job, isCutShort);
    machine.jobs = machine.jobs.filter((other) => other !== job);
  }
}

async function settleWriter(context: ClientContext, job: WrittenJob, isCutShort: boolean): Promise<void> {
  const known = await findJob(context, job);
  // The start was refused, or it was interrupted before the service recorded the job.
  if (known === undefined) return;
  const { exec, stdout, stderr } = await readResult(context, job);
  const about = `job ${job.tag} (${job.id}) of ${job.machine.id}, ${exec.status} with ${exec.exit_code}`;
  if (exec.status === 'exited' && exec.exit_code === job.exitCode) {
    if (!stdout.equals(job.stdout)) contradict(context, `${about}: stdout ${describeDamage(stdout, job.stdout)}`);
    if (!stderr.equals(job.stderr)) contradict(context, `${about}: stderr ${describeDamage(stderr, job.stderr)}`);
    job.disk.doubtful.delete(job.tag);
    job.disk.certain.set(job.tag, createHash('sha256').update(job.stdout).digest('hex'));
    context.journal.act(context.who, 'job result', about);
    return;
  }
  if (!isCutShort && !(await mayBeLost(context, job, exec)))
    contradict(context, `${about}: it should have exited with ${job.exitCode}`);
  if (!job.stdout.subarray(0, stdout.length).equals(stdout)) {
    contradict(context, `${about}: stdout ${describeDamage(stdout, job.stdout)}`);
  }
  context.journal.act(context.who, 'job cut short', about);
}

/**
 * Whether the service may have lost or ended the job: someone else ended its machine, or its start got no answer and it
 * has no output.
 */
const mayBeLost = async (
  context: ClientContext,
  job: Job,
  { status, stdout_bytes, stderr_bytes }: Exec,
): Promise<boolean> =>
  (job.isStartUncertain && status === 'lost' && stdout_bytes + stderr_bytes === 0) ||
  (await wasEnded(context, job.machine));

function describe(context: ClientContext, machine: Machine, command: string): Job {
  // The activity feed does not name jobs, so each job is recognized there by its time-out, which no other job has.
  return { id: randomUUID(), machine, command, timeoutSec: 1_000 + context.nextNumber(), isStartUncertain: true };
}

async function submit(context: ClientContext, job: Job): Promise<void> {
  const { machine, id, command, timeoutSec } = job;
  context.ledger.allow(entryOf(job));
  const { uncertain } = await ask<Exec>(context, {
    method: 'POST',
    path: `/v1/machines/${machine.id}/execs`,
    body: { command, exec_id: id, timeout_sec: timeoutSec },
    accepts: [201],
    machine,
    // 409 means that an earlier attempt, whose answer was lost, has started the job. So look the job up.
    findResult: ({ status }) => (status === 409 ? findJob(context, job) : Promise.resolve(undefined)),
  });
  job.isStartUncertain = uncertain > 0;
}

async function findJob(context: ClientContext, { machine, id }: Job): Promise<Exec | undefined> {
  const path = `/v1/machines/${machine.id}/execs/${id}`;
  const { body } = await ask<Exec & { code?: string }>(context, { method: 'GET', path, accepts: [200, 404] });
  return body.code === undefined ? body : undefined;
}

type JobResult = { exec: Exec; stdout: Buffer; stderr: Buffer };

/**
 * Waits for the end of a job and reads its output. From then on, the activity feed must have an entry about the job.
 */
async function readResult(context: ClientContext, job: Job): Promise<JobResult> {
  const { machine, id } = job;
  const path = `/v1/machines/${machine.id}/execs/${id}`;
  const until = performance.now() + GIVE_UP_MS;
  for (;;) {
    const { body: exec } = await ask<Exec>(context, {
      method: 'GET',
      path: `${path}?wait_ms=${WAIT_MS}`,
      accepts: [200],
    });
    if (exec.status !== 'running') {
      const [stdout, stderr] = [await readStream(context, path, 'stdout'), await readStream(context, path, 'stderr')];
      const neverRan = exec.status === 'lost' && job.isStartUncertain && stdout.length + stderr.length === 0;
      if (!neverRan) context.ledger.acknowledge(entryOf(job), { exit_code: exec.exit_code });
      return { exec, stdout, stderr };
    }
    if (performance.now() > until) throw contradict(context, `job ${id} of ${machine.id} still runs: ${job.command}`);
  }
}

async function readStream(context: ClientContext, job: string, stream: OutputStream): Promise<Buffer> {
  const pages: Buffer[] = [];
  for (let offset = 0, eof = false; !eof; ) {
    const path = `${job}/output?stream=${stream}&offset=${offset}&limit=65536&wait_ms=1000`;
    const { body: page } = await ask<ExecOutput>(context, { method: 'GET', path, accepts: [200] });
    pages.push(Buffer.from(page.data, 'base64'));
    ({ next_offset: offset, eof } = page);
  }
  return Buffer.concat(pages);
}

const entryOf = ({ machine, timeoutSec }: Job): string => `exec ${machine.id} ${timeoutSec}`;

function describeDamage(found: Buffer, expected: Buffer): string {
  const at = found.findIndex((byte, index) => byte !== expected[index]);
  return `has ${found.length} of ${expected.length} bytes and differs at ${at < 0 ? found.length : at}`;
}
