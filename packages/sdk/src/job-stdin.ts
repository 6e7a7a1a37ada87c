// Writes to the open stdin of a job. While a request is under way, the client collects further writes and sends them
// together in the next request. Every request names the offset of its first byte, so the client may repeat it after any
// failure: the service writes no byte twice.
import type { ExecStdin } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { concatBytes, toBytes } from './bytes.ts';
import { sleep } from './retry.ts';
import { settleLater } from './settle-later.ts';
import type { Transport } from './transport.ts';

/** The pause after a request from which the service accepted no bytes, ms. */
const IDLE_MS = 100;

type Waiter = { end: number; isClose: boolean; resolve: () => void; reject: (error: unknown) => void };

export class JobStdin {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #signal: AbortSignal | undefined;
  /** Bytes that were not accepted yet. The first is at offset `#accepted`. */
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #waiters: Waiter[] = [];
  /** How many bytes the job has accepted; undefined until the service was asked. */
  #accepted: number | undefined;
  #isEnding = false;
  #isClosed = false;
  #isSending = false;
  #failure: { error: unknown } | undefined;

  /**
   * `path`: the API path of the job. `accepted`: how many bytes of stdin the job has accepted so far; if undefined, the
   * first write asks the service. When `signal` is aborted, all writes fail.
   */
  constructor(transport: Transport, path: string, accepted: number | undefined, signal?: AbortSignal) {
    this.#transport = transport;
    this.#path = `${path}/stdin`;
    this.#accepted = accepted;
    this.#signal = signal;
  }

  /** How many bytes were written, but not accepted yet. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /**
   * Appends bytes, or text as UTF-8. Resolves when the job has accepted them, which may take until the command reads
   * its stdin. You may call it again before that; the order of the calls is kept. Throws SandbarError `conflict` when
   * the job has ended or the command has closed its stdin, and ConnectionError. After an error all later writes fail.
   */
  write(data: Uint8Array | string): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure.error);
    if (this.#isEnding) return Promise.reject(new Error('stdin was closed before this write'));
    // Copy the bytes, because the caller may reuse its buffer before they are sent.
    const bytes = typeof data === 'string' ? toBytes(data) : data.slice();
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    return this.#wait(false);
  }

  /** Closes stdin after all earlier writes. Resolves when the job has accepted everything. May be called again. */
  close(): Promise<void> {
    this.#isEnding = true;
    return this.#wait(true);
  }

  #wait(isClose: boolean): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure.error);
    const { promise, resolve, reject } = settleLater<void>();
    const end = this.#pendingBytes + (this.#accepted ?? 0);
    this.#waiters.push({ end, isClose, resolve, reject });
    if (!this.#isSending) void this.#send();
    return promise;
  }

  async #send(): Promise<void> {
    this.#isSending = true;
    // Let the caller's synchronous code finish first, so that all its writes go into the first request.
    await Promise.resolve();
    try {
      if (this.#accepted === undefined) await this.#findOffset();
      while (this.#pendingBytes > 0 || (this.#isEnding && !this.#isClosed)) await this.#sendOnce();
      this.#release();
    } catch (error) {
      this.#failure = { error };
      this.#pending = [];
      this.#pendingBytes = 0;
      for (const { reject } of this.#waiters.splice(0)) reject(error);
    }
    this.#isSending = false;
  }

  async #findOffset(): Promise<void> {
    const { next_offset } = await this.#put(0, new Uint8Array(0), false);
    this.#accepted = next_offset;
    for (const waiter of this.#waiters) waiter.end += next_offset;
  }

  async #sendOnce(): Promise<void> {
    const offset = this.#accepted ?? 0;
    const body = this.#take();
    const isLast = body.length === this.#pendingBytes;
    const { next_offset, closed } = await this.#put(offset, body, this.#isEnding && isLast);
    const accepted = Math.max(0, Math.min(next_offset - offset, body.length));
    this.#drop(accepted);
    this.#accepted = offset + accepted;
    // The service accepts no bytes when the command has not read for a while, or when the service is about to stop. In
    // the second case it answers at once. So wait before the next request.
    if (accepted === 0 && !closed) await sleep(IDLE_MS, this.#signal);
    if (closed && this.#pendingBytes === 0) this.#isClosed = true;
    this.#release();
  }

  #put(offset: number, bytes: Uint8Array, close: boolean): Promise<ExecStdin> {
    const query = { offset, ...(close ? { close } : {}) };
    return this.#transport.json('PUT', this.#path, { query, content: () => bytes, signal: this.#signal });
  }

  /** Returns the first pending bytes, at most as many as one request may send. The bytes stay pending. */
  #take(): Uint8Array {
    if (this.#pending.length > 1) this.#pending = [concatBytes(this.#pending)];
    return (this.#pending[0] ?? new Uint8Array(0)).subarray(0, EXEC_BOUNDS.stdinAppendBytes);
  }

  #drop(count: number): void {
    this.#pendingBytes -= count;
    const first = this.#pending[0];
    if (first !== undefined) this.#pending[0] = first.subarray(count);
    if (this.#pending[0]?.length === 0) this.#pending.shift();
  }

  /** Resolves the calls whose bytes were accepted. A close also waits until stdin is closed. */
  #release(): void {
    const accepted = this.#accepted ?? 0;
    const isDone = ({ end, isClose }: Waiter) => end <= accepted && (!isClose || this.#isClosed);
    const done = this.#waiters.filter(isDone);
    this.#waiters = this.#waiters.filter((waiter) => !isDone(waiter));
    for (const { resolve } of done) resolve();
  }
}
