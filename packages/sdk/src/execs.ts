// Exec jobs: start a command in a machine, wait for it, read its output.
import { setTimeout as delay } from 'node:timers/promises';
import type { Exec, ExecCreate, ExecOutput, ExecOutputQuery, OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { ConnectionError } from './errors.ts';
import { parseEvents } from './event-stream.ts';
import { type CallOptions, machinePath } from './machines.ts';
import type { Transport } from './transport.ts';

/** One long poll. Below the usual 60 s after which something in between gives a silent connection up. */
const WAIT_MS = 30_000;
/** Between attempts to reach the service again, ms, and for how long a stream tries before it throws. */
const RECONNECT_MS = 250;
const RECONNECT_FOR_MS = 30_000;

export class Execs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Starts a command and resolves as soon as it is accepted. */
  start(machineId: string, command: ExecCreate, { signal }: CallOptions = {}): Promise<Exec> {
    return this.#transport.json('POST', execsPath(machineId), { body: command, signal });
  }

  async list(machineId: string, { signal }: CallOptions = {}): Promise<Exec[]> {
    return (await this.#transport.json<{ execs: Exec[] }>('GET', execsPath(machineId), { signal })).execs;
  }

  /** The job as it is, or as it is when it ends if that comes within `waitMs` (up to 60000). */
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
    return this.#transport.json('POST', `${execPath(machineId, execId)}/cancel`, { signal });
  }

  /** One page of output, its bytes in base64. */
  output(
    machineId: string,
    execId: string,
    query: ExecOutputQuery = {},
    { signal }: CallOptions = {},
  ): Promise<ExecOutput> {
    return this.#transport.json('GET', `${execPath(machineId, execId)}/output`, { query: { ...query }, signal });
  }

  /**
   * The bytes of a stream from `offset` on as they come, until the job has ended and all of them are read. A connection
   * that breaks is made again where it broke, so every byte comes exactly once. Throws ConnectionError when the service
   * stays away for 30 seconds.
   */
  async *streamOutput(
    machineId: string,
    execId: string,
    stream: OutputStream,
    { offset = 0, signal }: CallOptions & { offset?: number } = {},
  ): AsyncGenerator<Uint8Array> {
    let position = offset;
    let triesUntil = performance.now() + RECONNECT_FOR_MS;
    for (;;) {
      try {
        for await (const page of this.#followOutput(machineId, execId, stream, position, signal)) {
          const bytes = Buffer.from(page.data, 'base64');
          position = page.next_offset;
          triesUntil = performance.now() + RECONNECT_FOR_MS;
          if (bytes.length > 0) yield bytes;
          if (page.eof) return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof ConnectionError) || performance.now() > triesUntil) throw error;
      }
      // Also after a stream that ended without an eof: a replica that shuts down closes its streams.
      await delay(RECONNECT_MS, undefined, { signal });
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
    const response = await this.#transport.send('GET', `${execPath(machineId, execId)}/output`, {
      query: { stream, offset, limit: EXEC_BOUNDS.pageBytesMax },
      headers: { accept: 'text/event-stream', ...(offset > 0 ? { 'last-event-id': String(offset) } : {}) },
      signal,
    });
    if (response.body === null) return;
    const events = parseEvents(response.body);
    for (;;) {
      const next = await events.next().catch((error: unknown) => {
        signal?.throwIfAborted();
        throw new ConnectionError(this.#transport.baseUrl, error);
      });
      if (next.done) return;
      yield JSON.parse(next.value.data) as ExecOutput;
    }
  }
}

function execsPath(machineId: string): string {
  return `${machinePath(machineId)}/execs`;
}

function execPath(machineId: string, execId: string): string {
  return `${execsPath(machineId)}/${encodeURIComponent(execId)}`;
}
