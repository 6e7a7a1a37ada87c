// Exec jobs: start a command in a machine, wait for it, read its output.
import type {
  Exec,
  ExecCreate,
  ExecOutput,
  ExecOutputQuery,
  ExecStarted,
  OutputStream,
} from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { JobSignal } from '@sandbar/contract/exec-states.ts';
import { collectBytes, fromBase64 } from './bytes.ts';
import type { CallOptions } from './call-options.ts';
import { ConnectionError } from './errors.ts';
import { readEvents } from './event-stream.ts';
import { Job } from './job.ts';
import { JobStdin } from './job-stdin.ts';
import { machinePath } from './machines.ts';
import { ReopenSchedule } from './reopen-schedule.ts';
import type { Transport } from './transport.ts';

/** The duration of one long poll, ms. Many proxies close a connection that is silent for 60 s, so this is shorter. */
const WAIT_MS = 30_000;

/** A job that has ended, with all of its output. */
export type RunResult = { job: Exec; stdout: Uint8Array; stderr: Uint8Array };

export type StreamOptions = CallOptions & {
  /** The position of the first byte to yield. Default: 0. */
  offset?: number;
  /**
   * A page that the caller already has, such as the page in the answer to `start`. The stream yields the bytes of this
   * page first and continues after it; `offset` is ignored.
   */
  firstPage?: ExecOutput | undefined;
};

export class Execs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Starts a command and resolves as soon as the service accepts it. With `waitMs` (0 to 60000) it resolves when the
   * job has ended or that time is over. Then `output` has the first page of each output stream, unless the output was
   * dropped already (`output_expired`). Pass that page as `firstPage` to `streamOutput` to read the rest.
   *
   * Without an `exec_id` the client generates one. If the answer is lost and the retry is refused because the id was
   * used already, this returns the job that the first request started, without `output`.
   */
  start(
    machineId: string,
    command: ExecCreate,
    { waitMs, ...call }: CallOptions & { waitMs?: number | undefined } = {},
  ): Promise<ExecStarted> {
    const body = { ...command, exec_id: command.exec_id ?? crypto.randomUUID() };
    const request = { ...call, waitMs, body, query: { wait_ms: waitMs }, isRepeatable: true };
    return this.#transport.json<ExecStarted>('POST', execsPath(machineId), request, async (refusal) => {
      if (refusal.code !== 'conflict') throw refusal;
      return this.get(machineId, body.exec_id, call).catch(() => {
        call.signal?.throwIfAborted();
        // There is no job with this id, so the conflict has another reason: perhaps the machine is stopped.
        throw refusal;
      });
    });
  }

  /**
   * Starts a command and resolves with a handle of the job. With `stdinOpen` the handle's `stdin` appends to the
   * command's standard input until it is closed; bytes of `stdin` in `command` come first. An abort of `signal` also
   * ends the writes to stdin, but not the job.
   */
  async startJob(
    machineId: string,
    command: ExecCreate,
    { stdinOpen = false, ...call }: CallOptions & { stdinOpen?: boolean | undefined } = {},
  ): Promise<Job> {
    const body = stdinOpen ? { ...command, stdin_open: true } : command;
    const { id } = await this.start(machineId, body, call);
    const accepted = fromBase64(command.stdin ?? '').length;
    const stdin = new JobStdin(this.#transport, execPath(machineId, id), accepted, call.signal);
    return new Job(this, machineId, id, stdin);
  }

  /**
   * A handle of a job that was started before. Writes to its stdin append to the bytes that the job has accepted.
   * `stdinOffset`: how many bytes these are. Without it, the client asks the service at the first write.
   */
  job(machineId: string, execId: string, options: CallOptions & { stdinOffset?: number } = {}): Job {
    const { signal, stdinOffset } = options;
    const stdin = new JobStdin(this.#transport, execPath(machineId, execId), stdinOffset, signal);
    return new Job(this, machineId, execId, stdin);
  }

  /**
   * Runs a command to its end and resolves with the job and all of its output, even when the command fails. A short
   * command takes one request. An abort does not end the job; to cancel the job, set `exec_id` and call `cancel`.
   */
  async run(machineId: string, command: ExecCreate, call: CallOptions = {}): Promise<RunResult> {
    const { signal, isDone } = this.#transport.limit(call);
    try {
      const { output, ...started } = await this.start(machineId, command, { waitMs: WAIT_MS, signal });
      const [stdout, stderr] = await Promise.all([
        collectBytes(this.streamOutput(machineId, started.id, 'stdout', { firstPage: output?.stdout, signal })),
        collectBytes(this.streamOutput(machineId, started.id, 'stderr', { firstPage: output?.stderr, signal })),
      ]);
      const job = started.status === 'running' ? await this.wait(machineId, started.id, { signal }) : started;
      return { job, stdout, stderr };
    } finally {
      isDone();
    }
  }

  async list(machineId: string, call: CallOptions = {}): Promise<Exec[]> {
    return (await this.#transport.json<{ execs: Exec[] }>('GET', execsPath(machineId), call)).execs;
  }

  /** The job as it is now. With `waitMs` (up to 60000) it resolves when the job has ended or that time is over. */
  get(machineId: string, execId: string, options: CallOptions & { waitMs?: number | undefined } = {}): Promise<Exec> {
    const { waitMs, ...call } = options;
    return this.#transport.json('GET', execPath(machineId, execId), { ...call, waitMs, query: { wait_ms: waitMs } });
  }

  /** Resolves when the job has ended. */
  async wait(machineId: string, execId: string, call: CallOptions = {}): Promise<Exec> {
    const { signal, isDone } = this.#transport.limit(call);
    try {
      for (;;) {
        const job = await this.get(machineId, execId, { signal, waitMs: WAIT_MS });
        if (job.status !== 'running') return job;
      }
    } finally {
      isDone();
    }
  }

  /** Ends every process of the job. If the job has ended already, returns it unchanged. */
  cancel(machineId: string, execId: string, call: CallOptions = {}): Promise<Exec> {
    return this.#transport.json('POST', `${execPath(machineId, execId)}/cancel`, { ...call, isRepeatable: true });
  }

  /**
   * Sends a signal to the first process of the job. If the job has ended already, returns it unchanged. After a 503 the
   * client retries, so the job may get the signal twice.
   */
  signal(machineId: string, execId: string, name: JobSignal, call: CallOptions = {}): Promise<Exec> {
    return this.#transport.json('POST', `${execPath(machineId, execId)}/signal`, { ...call, body: { signal: name } });
  }

  /** One page of output; `data` is in base64. */
  output(machineId: string, execId: string, query: ExecOutputQuery = {}, call: CallOptions = {}): Promise<ExecOutput> {
    return this.#transport.json('GET', `${execPath(machineId, execId)}/output`, { ...call, query: { ...query } });
  }

  /**
   * Yields the bytes of a stream from `offset` on, as the command writes them. It ends when the job has ended and all
   * bytes were read. When the connection breaks, it connects again at the same offset, so it yields every byte exactly
   * once. Throws OutputExpiredError when the output was dropped before it was read, and ConnectionError when it cannot
   * connect again within `retryForSec`.
   */
  async *streamOutput(
    machineId: string,
    execId: string,
    stream: OutputStream,
    { offset = 0, firstPage, ...call }: StreamOptions = {},
  ): AsyncGenerator<Uint8Array> {
    if (firstPage !== undefined && firstPage.data !== '') yield fromBase64(firstPage.data);
    if (firstPage?.eof) return;
    let position = firstPage?.next_offset ?? offset;
    const { signal, isDone } = this.#transport.limit(call);
    const schedule = new ReopenSchedule(this.#transport.retryForMs);
    try {
      for (;;) {
        // A stream that ends before `eof` also counts as broken: the service closes its streams when it shuts down.
        let failure: unknown = new ConnectionError(
          this.#transport.baseUrl,
          'the output stream was closed before its end',
        );
        try {
          const response = await this.#openOutput(machineId, execId, stream, position, signal);
          schedule.noteOpen();
          for await (const page of readEvents<ExecOutput>(response, this.#transport.baseUrl)) {
            const bytes = fromBase64(page.data);
            position = page.next_offset;
            schedule.noteProgress();
            if (bytes.length > 0) yield bytes;
            if (page.eof) return;
          }
        } catch (error) {
          failure = error;
        }
        await schedule.wait(failure, signal);
      }
    } finally {
      isDone();
    }
  }

  #openOutput(
    machineId: string,
    execId: string,
    stream: OutputStream,
    offset: number,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    return this.#transport.open('GET', `${execPath(machineId, execId)}/output`, {
      query: { stream, offset, limit: EXEC_BOUNDS.pageBytesMax },
      headers: { accept: 'text/event-stream', ...(offset > 0 ? { 'last-event-id': String(offset) } : {}) },
      signal,
    });
  }
}

function execsPath(machineId: string): string {
  return `${machinePath(machineId)}/execs`;
}

function execPath(machineId: string, execId: string): string {
  return `${execsPath(machineId)}/${encodeURIComponent(execId)}`;
}
