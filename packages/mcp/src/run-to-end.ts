// Runs a command to its end for a tool call. When the call is cancelled, this also cancels the job, because nobody
// would read its result.
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Exec, ExecCreate, ExecStarted, OutputStream } from '@sandbar/contract/exec.ts';
import { fromBase64 } from '@sandbar/sdk/bytes.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { NotFoundError } from '@sandbar/sdk/service-errors.ts';
import { NO_OUTPUT, type OutputPart, toOutputPart } from './output-part.ts';
import type { ToolCall } from './tool.ts';
import { ToolError } from './tool-errors.ts';

/** How long one request waits for the end of the job, ms. After each request the caller gets a progress report. */
const WAIT_MS = 5000;
/** If the cancel arrives before the start of the job, it is repeated after this time, ms. */
const CANCEL_AGAIN_MS = 250;

export type EndedJob = { job: Exec; stdout: OutputPart; stderr: OutputPart };

/**
 * Runs a command and resolves with the job and the first `maxBytes` of each stream. When the call is cancelled, cancels
 * the job and throws the signal's reason.
 */
export async function runToEnd(
  call: ToolCall,
  machineId: string,
  command: ExecCreate,
  maxBytes: number,
): Promise<EndedJob> {
  const { client, signal } = call;
  signal.throwIfAborted();
  const jobId = randomUUID();
  // Do not pass the signal to the start, because the service may carry out the start even if it is aborted here.
  const starting = client.execs.start(machineId, { ...command, exec_id: jobId }, { waitMs: WAIT_MS });
  const done = new AbortController();
  const cancelled = new Promise<never>((_resolve, reject) => {
    const cancel = () => cancelJob(call, machineId, jobId, starting).then(() => reject(signal.reason), reject);
    signal.addEventListener('abort', cancel, { once: true, signal: done.signal });
  });
  const ended = starting.then((started) => readEnd(call, started, maxBytes));
  ended.catch(() => undefined);
  try {
    return await Promise.race([ended, cancelled]);
  } catch (error) {
    // An abort also makes the wait fail. Then first wait until the job is cancelled.
    if (signal.aborted) return await cancelled;
    throw error instanceof ConnectionError ? withJob(error, jobId) : error;
  } finally {
    done.abort();
  }
}

/** Waits until the job has ended, and reads its output. */
async function readEnd(call: ToolCall, started: ExecStarted, maxBytes: number): Promise<EndedJob> {
  const { client, signal, reportProgress } = call;
  const beganAt = performance.now();
  let job: Exec = started;
  while (job.status === 'running' && !signal.aborted) {
    const elapsedSec = (WAIT_MS + performance.now() - beganAt) / 1000;
    const written = `${job.stdout_bytes} bytes of stdout, ${job.stderr_bytes} of stderr`;
    await reportProgress(elapsedSec, `running for ${Math.round(elapsedSec)} s, ${written}`);
    job = await client.execs.get(job.machine_id, job.id, { waitMs: WAIT_MS, signal });
  }
  signal.throwIfAborted();
  const [stdout, stderr] = await Promise.all([
    firstPart(call, job, started, 'stdout', maxBytes),
    firstPart(call, job, started, 'stderr', maxBytes),
  ]);
  return { job, stdout, stderr };
}

async function firstPart(
  { client, signal }: ToolCall,
  job: Exec,
  { output }: ExecStarted,
  stream: OutputStream,
  maxBytes: number,
): Promise<OutputPart> {
  const first = output?.[stream];
  if (first && (first.eof || fromBase64(first.data).length >= maxBytes)) return toOutputPart(first, maxBytes);
  if (job[`${stream}_bytes`] === 0) return NO_OUTPUT;
  const page = await client.execs.output(job.machine_id, job.id, { stream, limit: maxBytes }, { signal });
  return toOutputPart(page, maxBytes);
}

/** Cancels the job. If the service has not started it yet, tries again until it has. */
async function cancelJob(
  { client }: ToolCall,
  machineId: string,
  jobId: string,
  starting: Promise<unknown>,
): Promise<void> {
  let isStarting = true;
  const note = () => {
    isStarting = false;
  };
  starting.then(note, note);
  for (;;) {
    const wasStarting = isStarting;
    try {
      await client.execs.cancel(machineId, jobId);
      return;
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      if (!wasStarting) return;
    }
    await delay(CANCEL_AGAIN_MS);
  }
}

/** Adds the id of the job to the error of a broken connection, because the job may still run. */
function withJob(error: ConnectionError, jobId: string): ToolError {
  const advice = `The job ${jobId} may still run. Look at it with exec_output before you run the command again.`;
  return new ToolError('connection_error', error.message, advice);
}
