// Exec jobs: start a command in a machine, wait for it, read its output.
import { randomUUID } from 'node:crypto';
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
import { ConnectionError } from './errors.ts';
import { parseEvents } from './event-stream.ts';
import { Job } from './job.ts';
import { JobStdin } from './job-stdin.ts';
import { type CallOptions, machinePath } from './machines.ts';
import { sleep } from './retry.ts';
import type { Transport } from './transport.ts';

/** The duration of one long poll, ms: below 60 s, after which many proxies close a silent connection. */
const WAIT_MS = 30_000;
/** The wait before a broken output stream is opened again, ms. */
const REOPEN_MS = 250;

/** A job that has ended, with all of its output. */
export type RunResult = { job: Exec; stdout: Uint8Array; stderr: Uint8Array };

export type StreamOptions = CallOptions & {
  /** The first byte to yield. Default: 0. */
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
    { signal, waitMs }: CallOptions & { waitMs?: number } = {},
  ): Promise<ExecStarted> {
    const body = { ...command, exec_id: command.exec_id ?? randomUUID() };
    const request = { body, query: { wait_ms: waitMs }, isRepeatable: true, signal };
    return this.#transport.json<ExecStarted>('POST', execsPath(machineId), request, async (refusal) => {
      if (refusal.code !== 'conflict') throw refusal;
      return this.get(machineId, body.exec_id, { signal }).catch(() => {
        signal?.throwIfAborted();
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
    { signal, stdinOpen = false }: CallOptions & { stdinOpen?: boolean } = {},
  ): Promise<Job> {
    const body = stdinOpen ? { ...command, stdin_open: true } : command;
    const { id } = await this.start(machineId, body, { signal });
    const accepted = Buffer.byteLength(command.stdin ?? '', 'base64');
    return new Job(this, machineId, id, new JobStdin(this.#transport, execPath(machineId, id), accepted, signal));
  }

  /**
   * A handle of a job that was started before. Its stdin goes on where the accepted bytes end, which the service is
   * asked for unless `stdinOffset` says it.
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
  async run(machineId: string, command: ExecCreate, { signal }: CallOptions = {}): Promise<RunResult> {
    const { output, ...started } = await this.start(machineId, command, { waitMs: WAIT_MS, signal });
    const [stdout, stderr] = await Promise.all([
      collect(this.streamOutput(machineId, started.id, 'stdout', { firstPage: output?.stdout, signal })),
      collect(this.streamOutput(machineId, started.id, 'stderr', { firstPage: output?.stderr, signal })),
    ]);
    const job = started.status === 'running' ? await this.wait(machineId, started.id, { signal }) : started;
    return { job, stdout, stderr };
  }

  async list(machineId: string, { signal }: CallOptions = {}): Promise<Exec[]> {
    return (await this.#transport.json<{ execs: Exec[] }>('GET', execsPath(machineId), { signal })).execs;
  }

  /** The job as it is now. With `waitMs` (up to 60000) it resolves when the job has ended or that time is over. */
  get(machineId: string, execId: string, options: CallOptions & { waitMs?: number } = {}): Promise<Exec> {
    const { signal, waitMs } = options;
    return this.#transport.json('GET', execPath(machineId, execId), { query: { wait_ms: waitMs }, signal });
  }

  /** Resolves when the job has ended. */
  async wait(machineId: string, execId: string, { signal }: CallOptions = {}): Promise<Exec> {
    for (;;) {
      const job = await this.get(machineId, execId, { waitMs: WAIT_MS, signal });
      if (job.status !== 'running') return job;
    }
  }

  /** Ends every process of the job. A job that has ended already is returned as it is. */
  cancel(machineId: string, execId: string, { signal }: CallOptions = {}): Promise<Exec> {
    return this.#transport.json('POST', `${execPath(machineId, execId)}/cancel`, { isRepeatable: true, signal });
  }

  /**
   * Sends a signal to the first process of the job. A job that has ended already is returned as it is. After a 503 the
   * signal may be sent twice.
   */
  signal(machineId: string, execId: string, name: JobSignal, { signal }: CallOptions = {}): Promise<Exec> {
    return this.#transport.json('POST', `${execPath(machineId, execId)}/signal`, { body: { signal: name }, signal });
  }

  /** One page of output; `data` is in base64. */
  output(
    machineId: string,
    execId: string,
    query: ExecOutputQuery = {},
    { signal }: CallOptions = {},
  ): Promise<ExecOutput> {
    return this.#transport.json('GET', `${execPath(machineId, execId)}/output`, { query: { ...query }, signal });
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
    { offset = 0, firstPage, signal }: StreamOptions = {},
  ): AsyncGenerator<Uint8Array> {
    if (firstPage !== undefined && firstPage.data !== '') yield Buffer.from(firstPage.data, 'base64');
    if (firstPage?.eof) return;
    let position = firstPage?.next_offset ?? offset;
    let brokenSince: number | undefined;
    for (;;) {
      // A stream that ends without `eof` counts as broken as well: the service ends its streams when it shuts down.
      let failure = new ConnectionError(this.#transport.baseUrl, 'the output stream was closed before its end');
      try {
        for await (const page of this.#followOutput(machineId, execId, stream, position, signal)) {
          const bytes = Buffer.from(page.data, 'base64');
          position = page.next_offset;
          brokenSince = undefined;
          if (bytes.length > 0) yield bytes;
          if (page.eof) return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof ConnectionError)) throw error;
        failure = error;
      }
      brokenSince ??= performance.now();
      if (performance.now() + REOPEN_MS > brokenSince + this.#transport.retryForMs) throw failure;
      await sleep(REOPEN_MS, signal);
    }
  }

  /** Yields the pages of one connection. Throws ConnectionError when the connection breaks. */
  async *#followOutput(
    machineId: string,
    execId: string,
    stream: OutputStream,
    offset: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<ExecOutput> {
    const response = await this.#transport.open('GET', `${execPath(machineId, execId)}/output`, {
      query: { stream, offset, limit: EXEC_BOUNDS.pageBytesMax },
      headers: { accept: 'text/event-stream', ...(offset > 0 ? { 'last-event-id': String(offset) } : {}) },
      signal,
    });
    if (response.body === null) return;
    try {
      for await (const { data } of parseEvents(response.body)) yield JSON.parse(data) as ExecOutput;
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionError(this.#transport.baseUrl, error);
    }
  }
}

async function collect(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function execsPath(machineId: string): string {
  return `${machinePath(machineId)}/execs`;
}

function execPath(machineId: string, execId: string): string {
  return `${execsPath(machineId)}/${encodeURIComponent(execId)}`;
}
