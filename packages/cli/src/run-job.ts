// Runs a command in a machine as if it ran in this terminal: copies its output live and returns its exit code.
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';
import type { Exec, ExecCreate, ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { JobInput } from './job-input.ts';
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

/**
 * Starts the command, shows its output and resolves with its exit code. `source` is what the command reads as its
 * standard input, if anything. An abort cancels the job and rejects.
 */
export async function runJob(
  sandbar: Sandbar,
  machineId: string,
  command: ExecCreate,
  signal: AbortSignal,
  source?: NodeJS.ReadStream,
): Promise<number> {
  // Generated here, so that an interruption can cancel the job even before the start request is answered.
  const id = randomUUID();
  const { execs } = sandbar;
  const input = source && new JobInput(source);
  const ended = new AbortController();
  try {
    const first = await input?.first();
    const isOpen = first?.isAll === false;
    const { output, ...started } = await execs.start(
      machineId,
      { ...command, ...stdinOf(first), exec_id: id },
      // While more input follows, do not wait for the job to end: the job rarely ends soon, and its input would have to
      // wait.
      { ...(isOpen ? {} : { waitMs: FIRST_WAIT_MS }), signal },
    );
    const running = { signal: AbortSignal.any([signal, ended.signal]) };
    const { stdin } = execs.job(machineId, id, { ...running, stdinOffset: first?.bytes.length ?? 0 });
    const passing = isOpen ? input?.passOn(stdin) : undefined;
    const copy = async (stream: OutputStream, firstPage: ExecOutput | undefined, target: NodeJS.WritableStream) => {
      for await (const bytes of execs.streamOutput(machineId, id, stream, { firstPage, ...running })) {
        if (!target.write(bytes)) await drained(target, running.signal);
      }
    };
    const copying = Promise.all([
      copy('stdout', output?.stdout, process.stdout),
      copy('stderr', output?.stderr, process.stderr),
    ]);
    // The input may never end, so do not wait for its end. But fail when passing it on fails.
    await Promise.race([copying, passing?.then(() => copying) ?? copying]);
    const job = started.status === 'running' ? await execs.wait(machineId, id, { signal }) : started;
    if (job.truncated) {
      printNotice(`output beyond ${EXEC_BOUNDS.outputBytesDefault / 2 ** 20} MiB of a stream was dropped`);
    }
    return exitCodeOf(job);
  } catch (error) {
    if (signal.aborted) {
      await execs.cancel(machineId, id, { signal: AbortSignal.timeout(CANCEL_FOR_MS) }).catch(() => {});
    }
    throw error;
  } finally {
    ended.abort();
    input?.stop();
  }
}

/** The fields of the start request for the first bytes of input. */
function stdinOf(first: { bytes: Buffer; isAll: boolean } | undefined): Pick<ExecCreate, 'stdin' | 'stdin_open'> {
  if (first === undefined) return {};
  const { bytes, isAll } = first;
  return {
    ...(bytes.length > 0 ? { stdin: bytes.toString('base64') } : {}),
    ...(isAll ? {} : { stdin_open: true }),
  };
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
