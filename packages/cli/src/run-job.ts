// Runs a command in a machine as if it ran here: its output as it comes, byte for byte, its exit code as ours.
import { constants } from 'node:os';
import type { Exec, ExecCreate, OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { UsageError } from './usage-error.ts';

/** As `timeout(1)` has it. */
const TIMED_OUT = 124;
const NO_RESULT = 125;

/** Starts the command, shows its output and resolves with its exit code. An abort cancels the job and rejects. */
export async function runJob(
  sandbar: Sandbar,
  machineId: string,
  command: ExecCreate,
  signal: AbortSignal,
): Promise<number> {
  const job = await sandbar.execs.start(machineId, command, { signal });
  try {
    await Promise.all([
      copyOutput(sandbar, machineId, job.id, 'stdout', process.stdout, signal),
      copyOutput(sandbar, machineId, job.id, 'stderr', process.stderr, signal),
    ]);
    const ended = await sandbar.execs.wait(machineId, job.id, { signal });
    if (ended.truncated) {
      console.error(`sandbar: output beyond ${EXEC_BOUNDS.outputBytesDefault / 2 ** 20} MiB of a stream was dropped`);
    }
    return exitCodeOf(ended);
  } catch (error) {
    if (signal.aborted) await sandbar.execs.cancel(machineId, job.id).catch(() => {});
    throw error;
  }
}

/** The exit code a shell would have for a job that ended; says on stderr why there is none of the command's own. */
export function exitCodeOf(job: Exec): number {
  if (job.status === 'timed_out') {
    console.error('sandbar: the command ran out of time');
    return TIMED_OUT;
  }
  if (job.status === 'lost') {
    console.error('sandbar: the machine stopped while the command ran');
    return NO_RESULT;
  }
  if (job.exit_code !== null) return job.exit_code;
  if (job.signal === null) return NO_RESULT;
  const signals: Record<string, number> = constants.signals;
  return 128 + (signals[job.signal] ?? 0);
}

/** Standard input of this process as base64. Throws UsageError when it is more than a job takes. */
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

async function copyOutput(
  sandbar: Sandbar,
  machineId: string,
  jobId: string,
  stream: OutputStream,
  target: NodeJS.WritableStream,
  signal: AbortSignal,
): Promise<void> {
  for await (const bytes of sandbar.execs.streamOutput(machineId, jobId, stream, { signal })) {
    if (!target.write(bytes)) await drained(target, signal);
  }
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
