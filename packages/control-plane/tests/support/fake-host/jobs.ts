// The jobs of the machines of a fake host. A job runs only a few words: `true`, `sleep`, `print TEXT`, `bytes N` and
// `exit N`.
import { once } from 'node:events';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  HOST_PATHS,
  type JobAnswer,
  type JobReport,
  OUTPUT_HEADERS,
  type StartJob,
} from '@sandbar/contract/host-api.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Handle } from './calls.ts';
import { type FakeMachine, type FakeState, type Job, machineOf } from './state.ts';

type JobParams = { id: string; job_id: string };

export function addJobRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  type Machine = { Params: { id: string } };
  type JobRoute = { Params: JobParams; Querystring: Record<string, string> };
  server.put<JobRoute>(HOST_PATHS.job, ({ params, query, body }, reply) =>
    handle('startJob', params.id, reply, async () => {
      startJob(host, params, body as StartJob);
      return answerOf(host, params, host.keepsOutput ? {} : query);
    }),
  );
  server.get<Machine>(HOST_PATHS.jobs, ({ params }, reply) =>
    handle('listJobs', params.id, reply, () => {
      const reports = [...machineOf(host, params.id).jobs.values()].map((job) => job.report);
      return { jobs: reports.filter((report) => report.status === 'running') };
    }),
  );
  server.get<Machine>(HOST_PATHS.keptOutput, ({ params }, reply) =>
    handle('keptOutput', params.id, reply, () => {
      const { report, jobs } = machineOf(host, params.id);
      const kept = [...jobs.values()].filter((job) => !job.report.output_expired);
      return { output_revision: report.output_revision, job_ids: kept.map((job) => job.report.job_id) };
    }),
  );
  server.get<JobRoute>(HOST_PATHS.job, ({ params, query }, reply) =>
    handle('getJob', params.id, reply, () => answerOf(host, params, query)),
  );
  server.post<JobRoute>(HOST_PATHS.jobCancel, ({ params }, reply) =>
    handle('cancel', params.id, reply, () => {
      endJob(host, params, { status: 'canceled', exit_code: null, signal: 'SIGTERM' });
      return jobOf(host, params).report;
    }),
  );
  server.get<JobRoute>(HOST_PATHS.jobOutput, ({ params, query }, reply) =>
    handle('output', params.id, reply, () => readOutput(host, params, query, reply)),
  );
}

/** Waits for the end of the job as long as the query says, and adds the output of an ended job if the query allows it. */
async function answerOf(host: FakeState, params: JobParams, query: Record<string, string>): Promise<JobAnswer> {
  if (query.wait_ms) await waitUntil(host, params.job_id, () => hasEnded(host, params), query.wait_ms);
  const { report, stdout } = jobOf(host, params);
  const isSmall = stdout.length <= Number(query.output_limit);
  if (!hasEnded(host, params) || report.output_expired || !isSmall || host.keepsOutput) return report;
  return { ...report, output: { stdout: stdout.toString('base64'), stderr: '' } };
}

export function jobOf(host: FakeState, { id, job_id }: JobParams): Job {
  const job = machineOf(host, id).jobs.get(job_id);
  if (!job) throw new ServiceError('not_found', 'The host does not know this job.');
  return job;
}

const hasEnded = (host: FakeState, params: JobParams): boolean => jobOf(host, params).report.status !== 'running';

function startJob(host: FakeState, params: JobParams, wanted: StartJob): JobReport {
  const { command = '', generation } = wanted;
  const machine = machineOf(host, params.id);
  if (machine.report.status !== 'running') throw new ServiceError('conflict', 'The machine is not running.');
  if (!(generation >= machine.bootGeneration))
    throw new ServiceError('conflict', 'The machine was stopped or changed since the command was sent. Send it again.');
  const known = machine.jobs.get(params.job_id);
  if (known) return known.report;
  const report: JobReport = {
    job_id: params.job_id,
    machine_id: params.id,
    status: 'running',
    exit_code: null,
    signal: null,
    stdout_bytes: 0,
    stderr_bytes: 0,
    truncated: false,
    finished_at: null,
    output_expired: false,
  };
  machine.jobs.set(params.job_id, { report, stdout: Buffer.alloc(0), wanted });
  const [word, ...rest] = command.split(' ');
  if (word === 'print') appendOutput(host, params, Buffer.from(rest.join(' ')));
  if (word === 'bytes') appendOutput(host, params, patternOf(Number(rest[0])));
  if (word === 'exit') queueMicrotask(() => endJob(host, params, { exit_code: Number(rest[0]) }));
  else if (word !== 'sleep') queueMicrotask(() => endJob(host, params));
  return report;
}

export function endJob(host: FakeState, params: JobParams, end: Partial<JobReport> = {}): void {
  const job = jobOf(host, params);
  if (job.report.status !== 'running') return;
  const finished_at = new Date().toISOString();
  job.report = { ...job.report, status: 'exited', exit_code: 0, finished_at, ...end };
  host.emit({ type: 'job', job: job.report });
  host.jobChanges.emit(params.job_id);
}

/** Ends the jobs of a machine whose virtual machine has ended. */
export function loseJobs(host: FakeState, machine: FakeMachine): void {
  for (const job of machine.jobs.values()) {
    if (job.report.status !== 'running') continue;
    job.report = { ...job.report, status: 'lost', finished_at: new Date().toISOString() };
    host.jobChanges.emit(job.report.job_id);
  }
}

export function appendOutput(host: FakeState, params: JobParams, bytes: Buffer): void {
  const job = jobOf(host, params);
  job.stdout = Buffer.concat([job.stdout, bytes]);
  job.report = { ...job.report, stdout_bytes: job.stdout.length };
  host.jobChanges.emit(params.job_id);
}

/** Drops the output of an ended job. `forget`: the host drops the job's record too. */
export function dropOutput(host: FakeState, params: JobParams, forget: boolean): void {
  const machine = machineOf(host, params.id);
  const job = jobOf(host, params);
  if (forget) machine.jobs.delete(params.job_id);
  else job.report = { ...job.report, output_expired: true };
  machine.report = { ...machine.report, output_revision: `${params.job_id} was dropped` };
  host.jobChanges.emit(params.job_id);
}

/** Waits until the job has printed more or has ended, and returns a page of its output. Fake jobs print to stdout only. */
async function readOutput(
  host: FakeState,
  params: JobParams,
  query: Record<string, string>,
  reply: FastifyReply,
): Promise<Buffer> {
  const offset = Number(query.offset);
  const outputNow = () => (query.stream === 'stdout' ? jobOf(host, params).stdout : Buffer.alloc(0));
  const hasPage = () => hasEnded(host, params) || outputNow().length > offset;
  await waitUntil(host, params.job_id, hasPage, query.wait_ms);
  if (jobOf(host, params).report.output_expired) throw new ServiceError('output_expired', 'the output was dropped');
  const all = outputNow();
  const page = all.subarray(offset, offset + Number(query.limit));
  const next = offset + page.length;
  reply.header(OUTPUT_HEADERS.nextOffset, String(next));
  reply.header(OUTPUT_HEADERS.totalBytes, String(all.length));
  reply.header(OUTPUT_HEADERS.eof, String(hasEnded(host, params) && next >= all.length));
  reply.type('application/octet-stream');
  return page;
}

async function waitUntil(host: FakeState, jobId: string, condition: () => boolean, waitMs = '0'): Promise<void> {
  const signal = AbortSignal.timeout(Number(waitMs) + 1);
  while (!condition() && !signal.aborted && host.isListening) {
    await once(host.jobChanges, jobId, { signal }).catch(() => undefined);
  }
}

/** Bytes that differ by position, so that a test notices pages that are swapped or repeated. */
export function patternOf(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let index = 0; index < length; index++) bytes[index] = (index * 31 + (index >> 8) * 7) & 255;
  return bytes;
}
