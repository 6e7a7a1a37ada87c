// Runs a command in a machine as if it ran here: its output as it is written, byte for byte, and its exit code as ours.
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';
import type { Exec, ExecCreate, ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { UsageError } from './arguments.ts';
import { printNotice } from './print.ts';

/** The exit code of a command that ran out of time, as in `timeout(1)`. */
const TIMED_OUT = 124;
const NO_RESULT = 125;
/**
 * How long the start of a job waits for its end, ms. A command that ends within it needs no second request. A longer one
 * shows nothing before it is over, so it is short.
 */
const FIRST_WAIT_MS = 300;
/** How long an interrupted command tries to cancel its job, ms. */
const CANCEL_FOR_MS = 10_000;

/** Starts the command, shows its output and resolves with its exit code. An abort cancels the job and rejects. */
export async function runJob(
  sandbar: Sandbar,
  machineId: string,
  command: ExecCreate,
  signal: AbortSignal,
): Promise<number> {
  // Chosen here, so that a job can be canceled whose start was not answered yet.
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

/** The exit code that a shell reports for such an end. When the command has none of its own, stderr says why. */
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
