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
import { ConnectionError } from './errors.ts';
import { parseEvents } from './event-stream.ts';
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
  /** The byte to begin with. */
  offset?: number;
  /** A page that is there already, such as the one of the start's answer. It is yielded first; `offset` is ignored. */
  firstPage?: ExecOutput | undefined;
};

export class Execs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Starts a command and resolves as soon as it is accepted. With `waitMs` (0 to 60000) it resolves when the job has ended
   * or that time is over, and the answer has the first page of each output stream. `firstPage` of `streamOutput` goes on
   * from there.
   *
   * Without an `exec_id` the client chooses one. A retry that is refused because the id exists returns the job that the
   * earlier request started, without `output`.
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
        // Nothing was started, so the conflict is another one, such as a machine that does not run.
        throw refusal;
      });
    });
  }

  /**
   * Runs a command to its end and resolves with its job and all of its output, whatever its exit code. A short command is
   * one request. An abort leaves the job running: cancel it by the `exec_id` that the command gave.
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

  /** The job as it is now. With `waitMs` (up to 60000) the answer comes when the job has ended or that time is over. */
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
   * Yields the bytes of a stream from `offset` on as they are written, and ends when the job has ended and all of them
   * were read. A broken connection is opened again at the same offset, so every byte comes exactly once. Throws
   * ConnectionError when the stream stays broken for as long as the client retries.
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
      // A service that shuts down closes its streams in order, but before the end of the output: also a broken stream.
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

  /** The pages of one connection. Throws ConnectionError when it breaks. */
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
