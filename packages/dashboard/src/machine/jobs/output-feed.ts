// The live output of one stream of a job, read from the API's event stream. The browser connects again by itself and
// resumes at the last event (Last-Event-ID). After a refusal this file asks for the reason and tries again.
import { ApiProblem, type Schemas } from '../../api/client.ts';
import type { JobId, StreamName } from './job-queries.ts';
import { type Line, LineBuffer } from './line-buffer.ts';
import { decodeBase64, readOutput } from './output-page.ts';

/** How many lines stay in memory. The download has all of them. */
const LINES_MOST = 100_000;
/** How many characters stay in memory. */
const CHARS_MOST = 32 * 1024 * 1024;
/** At most this much output before the newest byte is read for display, in bytes. */
const TAIL_BYTES = 16 * 1024 * 1024;
/** How often the page shows new output. */
const SHOW_MS = 50;
const RETRY_MS = 2_000;
/** After these statuses a retry cannot succeed. */
const FINAL = new Set([403, 404, 410]);

export type FeedState = {
  lines: readonly Line[];
  status: 'connecting' | 'live' | 'ended' | 'failed';
  problem: ApiProblem | undefined;
  /** How many bytes at the beginning were not read, and how many lines were dropped since. */
  skippedBytes: number;
  droppedLines: number;
};

export class OutputFeed {
  readonly #id: JobId;
  readonly #stream: StreamName;
  readonly #onEnd: () => void;
  readonly #buffer = new LineBuffer(LINES_MOST, CHARS_MOST);
  readonly #listeners = new Set<() => void>();
  #offset: number;
  /** The first line is skipped when reading began in the middle of it. */
  #skipsLine: boolean;
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #state: FeedState;

  /** `bytes`: the length of the stream so far. `onEnd` is called once, when the job has ended and all of it was read. */
  constructor(id: JobId, stream: StreamName, bytes: number, onEnd: () => void) {
    this.#id = id;
    this.#stream = stream;
    this.#onEnd = onEnd;
    this.#offset = Math.max(0, bytes - TAIL_BYTES);
    this.#skipsLine = this.#offset > 0;
    const { lines } = this.#buffer;
    const skippedBytes = this.#offset;
    this.#state = { lines, status: 'connecting', problem: undefined, skippedBytes, droppedLines: 0 };
  }

  /** Reads while there is at least one listener, and resumes at the same offset when a new one comes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    if (this.#listeners.size === 0) {
      document.addEventListener('visibilitychange', this.#follow);
      this.#follow();
    }
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      document.removeEventListener('visibilitychange', this.#follow);
      this.#disconnect();
    };
  };

  readonly state = (): FeedState => this.#state;

  /** A hidden page does not read: a browser opens only six connections to a server for all its tabs together. */
  readonly #follow = (): void => {
    if (document.hidden) this.#disconnect();
    else this.#connect();
  };

  #connect(): void {
    const { status } = this.#state;
    if (this.#source || status === 'ended' || status === 'failed') return;
    clearTimeout(this.#retry);
    const { machineId, execId } = this.#id;
    const path = `/v1/machines/${encodeURIComponent(machineId)}/execs/${encodeURIComponent(execId)}/output`;
    const source = new EventSource(`${path}?stream=${this.#stream}&offset=${this.#offset}`);
    this.#source = source;
    source.onopen = () => this.#show({ status: 'live', problem: undefined });
    source.onmessage = ({ data }: MessageEvent<string>) => this.#read(JSON.parse(data) as Schemas['ExecOutput']);
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) void this.#askWhy();
      else this.#show({ status: 'connecting' });
    };
  }

  #disconnect(): void {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = undefined;
  }

  #read({ offset, data, next_offset, eof }: Schemas['ExecOutput']): void {
    if (offset !== this.#offset) return;
    this.#offset = next_offset;
    this.#buffer.append(this.#withoutPartOfLine(decodeBase64(data)), eof);
    if (eof) this.#end();
    else this.#showSoon();
  }

  #end(): void {
    this.#disconnect();
    this.#show({ status: 'ended', problem: undefined });
    this.#onEnd();
  }

  #withoutPartOfLine(bytes: Uint8Array): Uint8Array {
    if (!this.#skipsLine) return bytes;
    const end = bytes.indexOf(0x0a);
    if (end < 0) return new Uint8Array();
    this.#skipsLine = false;
    return bytes.subarray(end + 1);
  }

  /** EventSource does not show why the server refused, so the same output is requested as JSON to get the reason. */
  async #askWhy(): Promise<void> {
    this.#disconnect();
    try {
      await readOutput(this.#id, { stream: this.#stream, offset: this.#offset, limit: 1 });
      this.#show({ status: 'connecting' });
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.#show({ status: FINAL.has(error.status) ? 'failed' : 'connecting', problem: error });
    }
    if (this.#listeners.size > 0 && !document.hidden) this.#retry = setTimeout(() => this.#connect(), RETRY_MS);
  }

  #showSoon(): void {
    this.#timer ??= setTimeout(() => this.#show({}), SHOW_MS);
  }

  #show(change: Partial<FeedState>): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#state = { ...this.#state, ...change, droppedLines: this.#buffer.dropped };
    for (const listener of this.#listeners) listener();
  }
}
