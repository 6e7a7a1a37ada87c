// Copies the output of a job to standard output and standard error, and waits while these take no more.
import type { ExecStarted, OutputStream } from '@sandbar/contract/exec.ts';
import type { Execs } from '@sandbar/sdk/execs.ts';

/**
 * Copies both streams until the job ends. `firstPages`: the output that the answer to the start request contained.
 * Rejects when `signal` is aborted.
 */
export async function copyOutput(
  execs: Execs,
  machineId: string,
  jobId: string,
  firstPages: Partial<NonNullable<ExecStarted['output']>>,
  signal: AbortSignal,
): Promise<void> {
  const copy = async (stream: OutputStream) => {
    const options = { firstPage: firstPages[stream], signal };
    for await (const bytes of execs.streamOutput(machineId, jobId, stream, options)) {
      await writeTo(process[stream], bytes, signal);
    }
  };
  await Promise.all([copy('stdout'), copy('stderr')]);
}

/** Writes the bytes, and resolves when the target takes more. Rejects when `signal` is aborted. */
export async function writeTo(target: NodeJS.WritableStream, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
  if (bytes.length === 0 || target.write(bytes)) return;
  signal.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    target.once('drain', () => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    });
  });
}
