// Runs a command in a machine as if it ran in this terminal: copies its output live and returns its exit code.
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';
import type { Exec, ExecCreate, ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { UsageError } from './arguments.ts';
import { printNotice } from './print.ts';

/** The exit code after a time-out; the same as of `timeout(1)`. */
const TIMED_OUT = 124;
const NO_RESULT = 125;
/**
 * How long the start request waits for the end of the job, in ms. A command that ends within this time needs no second
 * request. The output of a longer command is first printed after this time, so the time is short.
 */
const FIRST_WAIT_MS = 300;
/** How long an interrupted `sandbar` tries to cancel the job before it exits, ms. */
const CANCEL_FOR_MS = 10_000;

/** Starts the command, shows its output and resolves with its exit code. An abort cancels the job and rejects. */
export async function runJob(
  sandbar: Sandbar,
  machineId: string,
  command: ExecCreate,
  signal: AbortSignal,
): Promise<number> {
  // Generated here, so that an interruption can cancel the job even before the start request is answered.
  const id = randomUUID();
  const { execs } = sandbar;
  try {
    const { output, ...started } = await execs.start(
      machineId,
      { ...command, exec_id: id },
      { waitMs: FIRST_WAIT_MS, signal },
    );
    const copy = async (stream: OutputStream, firstPage: ExecOutput | undefined, target: NodeJS.WritableStream) => {
      for await (const bytes of execs.streamOutput(machineId, id, stream, { firstPage, signal })) {
        if (!target.write(bytes)) await drained(target, signal);
      }
    };
    await Promise.all([copy('stdout', output?.stdout, process.stdout), copy('stderr', output?.stderr, process.stderr)]);
    const ended = started.status === 'running' ? await execs.wait(machineId, id, { signal }) : started;
    if (ended.truncated) {
      printNotice(`output beyond ${EXEC_BOUNDS.outputBytesDefault / 2 ** 20} MiB of a stream was dropped`);
    }
    return exitCodeOf(ended);
  } catch (error) {
    if (signal.aborted) {
      await execs.cancel(machineId, id, { signal: AbortSignal.timeout(CANCEL_FOR_MS) }).catch(() => {});
    }
    throw error;
  }
}

/** The exit code that a shell would report for this job. Explains a time-out and a lost machine on stderr. */
export function exitCodeOf(job: Exec): number {
  if (job.status === 'timed_out') {
    printNotice('the command ran out of time');
    return TIMED_OUT;
  }
  if (job.status === 'lost') {
    printNotice('the machine stopped while the command ran');
    return NO_RESULT;
  }
  if (job.exit_code !== null) return job.exit_code;
  if (job.signal === null) return NO_RESULT;
  const signals: Record<string, number> = constants.signals;
  return 128 + (signals[job.signal] ?? 0);
}

/** Reads standard input to its end, as base64. Throws UsageError when it is over the limit of a job. */
export async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > EXEC_BOUNDS.stdinBytes) {
      throw new UsageError(`standard input may have ${EXEC_BOUNDS.stdinBytes / 1024} KiB at most`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('base64');
}

async function drained(target: NodeJS.WritableStream, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    target.once('drain', () => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    });
  });
}
