// Starts a job. One transaction inserts its row and checks the limit of 16 running jobs a machine, then the host starts
// the job. If the host refuses, the row is deleted. If it is unknown whether the host started the job, this module asks
// the host once, and later the reconciler asks again.
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  EXEC_BOUNDS,
  type ExecCreate,
  type ExecOutput,
  type ExecStarted,
  OUTPUT_STREAMS,
  type OutputStream,
} from '@sandbar/contract/exec.ts';
import type { JobAnswer, StartJob } from '@sandbar/contract/host-api.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { type EndQuestion, HostUnavailable } from '../hosts/client.ts';
import { waitForOperation } from '../operations/wait.ts';
import { checkArgv } from './check.ts';
import { type JobWaits, reported } from './job-waits.ts';
import { isExpired, isGone, readPageOfOutput, toPage } from './output.ts';
import { toExec } from './record.ts';
import { type Admission, admitJob, forgetJob } from './store.ts';

/**
 * `waitMs`: how long the request waits for the end of the job, in milliseconds, before it returns the job with its
 * output. If undefined, the request does not wait and returns no output.
 */
export type Waiting = { waits: JobWaits; waitMs: number | undefined; signal: AbortSignal };

/**
 * The host sends up to this much output together with the end of the job, in bytes. That saves most commands another
 * call to the host. Longer output is read in a call of its own, as raw bytes: inside JSON it is base64, a third longer.
 */
const INLINE_OUTPUT_BYTES = 16 * 1024;
/**
 * How long the call that starts the job waits for its end, in milliseconds, if the request waits at all. A short command
 * then needs no second call. The wait counts as time of the start in the metrics, so it is short.
 */
const FIRST_WAIT_MS = 30;

/**
 * Starts a job in a machine of the account. If the machine is being started, waits up to 30 s until it runs. Throws
 * `validation_error`, `not_found`, `conflict`, `host_unavailable`.
 */
export async function createExec(
  app: App,
  accountId: string,
  machineId: string,
  body: ExecCreate,
  { waits, waitMs, signal }: Waiting,
): Promise<ExecStarted> {
  checkStdin(body.stdin ?? '');
  checkArgv(body.argv);
  const { exec_id, name = '', ...rest } = body;
  const timeoutSec = body.timeout_sec ?? EXEC_BOUNDS.timeoutSecDefault;
  const execId = exec_id?.toLowerCase() ?? uuidv7();
  const admission = { accountId, machineId, execId, name, timeoutSec };
  const { exec, machine } = await app.tracing.span('exec.admit', {}, () => admitWhenRunning(app, admission));
  const job = {
    ...rest,
    timeout_sec: timeoutSec,
    env: { ...machine.env, ...body.env },
    generation: machine.generation,
  };
  const end = waitMs ? { waitMs: Math.min(waitMs, FIRST_WAIT_MS), outputLimit: INLINE_OUTPUT_BYTES } : undefined;
  const started = await startMeasured(app, machine, exec, job, end);
  const leftMs = end && started.status === 'running' ? (waitMs ?? 0) - end.waitMs : 0;
  const waited = leftMs > 0 ? await waits.end(exec, machine.host_id, leftMs, signal, INLINE_OUTPUT_BYTES) : undefined;
  const { report, row } = waited ?? reported(app, exec, started);
  // The output does not depend on the row, so read the output while the end of the job is being recorded.
  const pageOf = (stream: OutputStream) =>
    waitMs === undefined ? undefined : firstPage(app, machine, exec, report, stream, signal);
  const [present, ...pages] = await Promise.all([row(), ...OUTPUT_STREAMS.map(pageOf)]);
  const record = toExec(present, { timeoutSec, report });
  if (waitMs === undefined) return record;
  const [stdout, stderr] = pages;
  // The job has ended and its output was dropped already, so there is no page to return.
  if (!stdout || !stderr) return { ...record, output_expired: true };
  return { ...record, output: { stdout, stderr } };
}

async function admitWhenRunning(app: App, admission: Admission): Promise<{ exec: ExecRow; machine: MachineRow }> {
  const deadline = performance.now() + app.config.timing.runningWaitMs;
  for (;;) {
    const admitted = await admitJob(app, admission);
    if ('exec' in admitted) return admitted;
    await waitForOperation(app, admitted.waitsFor, deadline);
  }
}

async function startMeasured(
  app: App,
  machine: MachineRow,
  exec: ExecRow,
  job: StartJob,
  end: EndQuestion | undefined,
): Promise<JobAnswer> {
  const { execStarts, execStartSeconds } = app.metrics;
  const stop = execStartSeconds.startTimer();
  try {
    const report = await startOnHost(app, machine, exec, job, end);
    stop();
    execStarts.inc({ outcome: 'started' });
    return report;
  } catch (error) {
    execStarts.inc({ outcome: 'failed' });
    throw error;
  }
}

async function startOnHost(
  app: App,
  machine: MachineRow,
  { id }: ExecRow,
  job: StartJob,
  end: EndQuestion | undefined,
): Promise<JobAnswer> {
  const client = app.hosts.client(machine.host_id);
  try {
    return await client.startJob(machine.id, id, job, end);
  } catch (error) {
    const outcomeUnknown = error instanceof HostUnavailable && error.mayHaveActed;
    const started = outcomeUnknown ? await client.getJob(machine.id, id, 0).catch(() => undefined) : undefined;
    if (started) return started;
    if (outcomeUnknown) app.compareSoon(machine.host_id);
    else await forgetJob(app, machine.id, id);
    throw error;
  }
}

/**
 * Returns the first page of stdout or stderr, or undefined when the output was dropped already. If the host does not
 * answer, returns an empty page at offset 0, from which the client can read on. Does not ask the host when `report` has
 * the output already, or for the output of an ended job that has none.
 */
async function firstPage(
  app: App,
  machine: MachineRow,
  exec: ExecRow,
  report: JobAnswer,
  stream: OutputStream,
  signal: AbortSignal,
): Promise<ExecOutput | undefined> {
  const target = { exec, hostId: machine.host_id, machineState: machine.state, stream };
  const empty = { bytes: Buffer.alloc(0), nextOffset: 0, totalBytes: 0 };
  if (report.status !== 'running' && report[`${stream}_bytes`] === 0) return toPage(target, 0, { ...empty, eof: true });
  if (report.output) {
    const bytes = Buffer.from(report.output[stream], 'base64');
    app.metrics.outputBytes.inc({ form: 'page' }, bytes.length);
    return toPage(target, 0, { bytes, nextOffset: bytes.length, totalBytes: bytes.length, eof: true });
  }
  const query = { offset: 0, limit: EXEC_BOUNDS.pageBytesDefault, waitMs: 0 };
  try {
    const page = await readPageOfOutput(app, target, query, signal);
    app.metrics.outputBytes.inc({ form: 'page' }, page.bytes.length);
    return toPage(target, 0, page);
  } catch (error) {
    if (isExpired(error)) return undefined;
    if (!isGone(error)) throw error;
    return toPage(target, 0, { ...empty, eof: false });
  }
}

/**
 * Throws `validation_error` for a stdin that is too large. The schema limits only the length of the base64 text, which
 * can decode to one byte more than allowed.
 */
function checkStdin(stdin: string): void {
  if (Buffer.byteLength(stdin, 'base64') > EXEC_BOUNDS.stdinBytes) {
    throw new ServiceError('validation_error', `stdin must be at most ${EXEC_BOUNDS.stdinBytes} bytes when decoded.`);
  }
}
