// Runs a command in a machine as if it ran in this terminal: copies its output live and returns its exit code.
import { randomUUID } from 'node:crypto';
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { JobInput } from './job-input.ts';
import { exitCodeOfJob } from './job-result.ts';
import { copyOutput } from './output-copy.ts';

/**
 * How long the start request waits for the end of the job, in ms. A command that ends within this time needs no second
 * request. The output of a longer command is first printed after this time, so the time is short.
 */
const FIRST_WAIT_MS = 300;
/** How long an interrupted `sandbar` tries to cancel the job before it exits, ms. */
const CANCEL_FOR_MS = 10_000;

/**
 * Starts the command, shows its output and resolves with its exit code. The command reads `source`, if given, as its
 * standard input. When `signal` is aborted, cancels the job and rejects.
 */
export async function runJob(
  sandbar: Client,
  machineId: string,
  command: ExecCreate,
  signal: AbortSignal,
  source?: NodeJS.ReadStream,
): Promise<number> {
  // Choose the id here, so that an interruption can cancel the job even before the start request is answered.
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
      // If more input follows, do not wait for the job to end. The input would have to wait too, and the job may not
      // end without it.
      { ...(isOpen ? {} : { waitMs: FIRST_WAIT_MS }), signal },
    );
    const running = { signal: AbortSignal.any([signal, ended.signal]) };
    const { stdin } = execs.job(machineId, id, { ...running, stdinOffset: first?.bytes.length ?? 0 });
    const passing = isOpen ? input?.passOn(stdin) : undefined;
    const copying = copyOutput(execs, machineId, id, output ?? {}, running.signal);
    // The input may never end, so do not wait for its end. But fail when passing it on fails.
    await Promise.race([copying, passing?.then(() => copying) ?? copying]);
    const job = started.status === 'running' ? await execs.wait(machineId, id, { signal }) : started;
    return exitCodeOfJob(job);
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

/** The fields of the start request that send the first bytes of input, and say whether more input follows. */
function stdinOf(first: { bytes: Buffer; isAll: boolean } | undefined): Pick<ExecCreate, 'stdin' | 'stdin_open'> {
  if (first === undefined) return {};
  const { bytes, isAll } = first;
  return {
    ...(bytes.length > 0 ? { stdin: bytes.toString('base64') } : {}),
    ...(isAll ? {} : { stdin_open: true }),
  };
}
