// A running command in the form that the AI SDK expects: streams of bytes, an exit code, and a way to end the command.
import type {
  Experimental_SandboxProcess as SandboxProcess,
  Experimental_WritableSandboxProcess as WritableSandboxProcess,
} from '@ai-sdk/provider-utils';
import { type ExecResult, exitCodeOf, type Job } from '@sandbar/sdk';

/** After an abort, the caller gets the reason when the command has ended, but after this time at the latest, ms. */
const CANCEL_TIMEOUT_MS = 5000;

/**
 * Makes the handle of a job. An abort of `signal` ends every process of the job, and `wait` throws the reason.
 * `hasStdin`: whether the job was started with an open stdin.
 */
export function processOf(job: Job, hasStdin: boolean, signal: AbortSignal | undefined): SandboxProcess {
  // Listen for the abort here and not only in `wait`: the command must end even if nobody calls `wait`.
  let cancelled: Promise<void> | undefined;
  const onAbort = () => {
    cancelled = cancel(job);
  };
  if (signal?.aborted) onAbort();
  else signal?.addEventListener('abort', onAbort, { once: true });
  const process: SandboxProcess = {
    stdout: outputOf(job, 'stdout'),
    stderr: outputOf(job, 'stderr'),
    async wait() {
      try {
        const ended = await job.wait({ signal });
        signal?.removeEventListener('abort', onAbort);
        return { exitCode: exitCodeOf(ended) };
      } catch (error) {
        if (!signal?.aborted) throw error;
        await cancelled;
        throw signal.reason;
      }
    },
    async kill() {
      await job.cancel();
    },
  };
  if (!hasStdin) return process;
  const writable: WritableSandboxProcess = { ...process, stdin: inputOf(job) };
  return writable;
}

/** The result of a job. If `signal` is aborted first, ends every process of the job, then throws the reason. */
export async function resultUntilAbort(job: Job, signal: AbortSignal): Promise<ExecResult> {
  try {
    return await job.result({ signal });
  } catch (error) {
    if (!signal.aborted) throw error;
    await cancel(job);
    throw signal.reason;
  }
}

/**
 * Ends a job that nobody needs any more. If the service does not answer, the job's time limit or the machine's expiry
 * ends it.
 */
async function cancel(job: Job): Promise<void> {
  await job.cancel({ timeoutMs: CANCEL_TIMEOUT_MS }).catch(() => undefined);
}

/** The bytes of one output stream from its first byte on. It is read only as fast as the consumer reads. */
function outputOf(job: Job, stream: 'stdout' | 'stderr'): ReadableStream<Uint8Array> {
  const stop = new AbortController();
  const chunks = job.output({ stream, signal: stop.signal });
  return toReadable(chunks, ({ data }) => data, stop);
}

/** Makes a stream from `source`. When the consumer cancels the stream, `stop` is aborted, which must end the source. */
export function toReadable<T>(
  source: AsyncIterator<T>,
  bytesOf: (item: T) => Uint8Array,
  stop: AbortController,
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await source.next();
        if (done) controller.close();
        else controller.enqueue(bytesOf(value));
      },
      cancel: (reason) => stop.abort(reason),
    },
    { highWaterMark: 0 },
  );
}

function inputOf({ stdin }: Job): WritableStream<Uint8Array> {
  return new WritableStream<Uint8Array>({
    write: (chunk) => stdin.write(chunk),
    close: () => stdin.close(),
    abort: () => stdin.close(),
  });
}
