// Sends a job's output as server-sent events until the stream ends. A slow client slows down only the reading of the
// host's output file, never the job, and keeps at most one page in memory.
import type { ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { OutputPage } from '../hosts/client.ts';
import { RESUME_SOON } from '../http/ending.ts';
import {
  findOutput,
  type OutputId,
  type OutputTarget,
  readPageOfOutput,
  refuseExpiredOutput,
  writePage,
} from './output.ts';
import { type EncodedPage, SharedPages } from './shared-pages.ts';
import { Turns } from './turns.ts';

/**
 * How long the host may be unreachable (for example while its agent restarts) before the event stream ends and the
 * client has to resume.
 */
const HOST_AWAY_MS = 30_000;
const RETRY_MS = 500;
/** The most bytes of output in one event. This is also what a stream whose client reads nothing keeps in memory. */
const PAGE_BYTES_MAX = 32 * 1024;
const KEEP_BYTES = 8 * 1024 * 1024;
/**
 * The pause before the next read once a stream has sent all output so far, in milliseconds for each stream that reads
 * the same job. When a job keeps printing small pieces, many readers then get one larger event and not many small ones.
 */
const PAUSE_MS = 0.25;
/**
 * The time that all streams together get. Only their own code is timed: for each millisecond of it, Node spends about
 * another one on the host's answers and on freeing memory.
 */
const TURNS = { sliceMs: 1, share: 1 / 8, savedMs: 5, chargeMaxMs: 5 };
/** For how long after a request streams get only their share of the time, in milliseconds. */
const OTHERS_MS = 100;

export type StreamReading = { offset: number; limit: number };

/** Sends the event streams of one replica. */
export class OutputStreams {
  readonly #app: App;
  readonly #turns = new Turns(TURNS, () => performance.now() - this.#lastRequestAt < OTHERS_MS);
  readonly #pages = new SharedPages(KEEP_BYTES);
  #lastRequestAt = Number.NEGATIVE_INFINITY;

  constructor(app: App) {
    this.#app = app;
  }

  /** Tells the streams that a request has begun. While requests keep coming, streams use less of the time. */
  noteRequest(): void {
    this.#lastRequestAt = performance.now();
  }

  /**
   * Looks up the job of a stream that an account opens, when it is the account's turn. Throws the errors of
   * `findOutput` and `refuseExpiredOutput`.
   */
  open(id: OutputId, stream: OutputStream, signal: AbortSignal): Promise<OutputTarget> {
    return this.#turns.run(id.accountId, async () => {
      const target = await findOutput(this.#app, id, stream);
      await refuseExpiredOutput(this.#app, target, signal);
      return target;
    });
  }

  /**
   * Writes events from `offset` on. Ends at the end of the output, or when `signal` is aborted because the client
   * disconnected, its credential ended or the service shuts down. Never throws.
   */
  async send(target: OutputTarget, reading: StreamReading, sink: Writable, signal: AbortSignal): Promise<void> {
    const limit = Math.min(reading.limit, PAGE_BYTES_MAX);
    let { offset } = reading;
    let awayMs = 0;
    let pauseMs = 0;
    try {
      while (!signal.aborted) {
        const page = await this.#read(target, { offset, limit }, pauseMs, signal).catch((error: unknown) => {
          if (isPassing(error) && awayMs < HOST_AWAY_MS) return undefined;
          throw error;
        });
        if (!page) {
          awayMs += RETRY_MS;
          await sleep(RETRY_MS, signal);
          continue;
        }
        awayMs = 0;
        await this.#turns.run(target.exec.account_id, () => {
          signal.throwIfAborted();
          return write(sink, page.event, signal);
        });
        this.#app.metrics.outputBytes.inc({ form: 'events' }, page.nextOffset - offset);
        offset = page.nextOffset;
        if (page.isLast) break;
        pauseMs = page.reachesEnd && page.readers > 1 ? page.readers * PAUSE_MS : 0;
      }
    } catch (error) {
      if (!signal.aborted)
        this.#app.log.warn({ err: error, exec_id: target.exec.id }, 'a stream of output ended early');
    }
    // If the client reads nothing, `end` would wait for it forever and keep the connection, so destroy the connection.
    if (sink.writableLength > 0) sink.destroy();
    else if (this.#app.closing.aborted) sink.write(RESUME_SOON, () => sink.destroy());
    else sink.end();
  }

  /** Returns the page at the offset. If no other stream is reading it, waits `pauseMs` and then asks the host. */
  async #read(
    target: OutputTarget,
    { offset, limit }: StreamReading,
    pauseMs: number,
    signal: AbortSignal,
  ): Promise<EncodedPage> {
    const { id: execId, account_id: accountId } = target.exec;
    const query = { offset, limit, waitMs: this.#app.config.timing.streamHeartbeatMs };
    const load = async (gone: AbortSignal) => {
      if (pauseMs > 0) await sleep(pauseMs, gone);
      const page = await this.#turns.run(accountId, () => readPageOfOutput(this.#app, target, query, gone));
      return this.#turns.runNow(() => encode(target, offset, page));
    };
    return this.#pages.read({ execId, stream: target.stream, offset, limit }, load, signal);
  }
}

const isPassing = (error: unknown): boolean => error instanceof ServiceError && error.code === 'host_unavailable';

/**
 * Writes an event and resolves when the operating system has taken all of it. Waiting for `drain` instead would load a
 * second page into memory while the first one is unsent. Rejects when the connection broke or `signal` is aborted.
 */
function write(sink: Writable, event: Buffer, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  // Node would send the pieces of a chunk together at the end of the tick, after the turn of this stream, so the time
  // for sending would not count for the turn. With cork and uncork they are sent at once.
  const { socket } = sink as Partial<ServerResponse>;
  socket?.cork();
  sink.write(event, (error) => (error ? reject(error) : resolve()));
  socket?.uncork();
  return promise.finally(() => signal.removeEventListener('abort', onAbort));
}

/** Formats a page as an event. A page without new bytes becomes an SSE comment, which keeps the connection alive. */
function encode(target: OutputTarget, offset: number, page: OutputPage): Omit<EncodedPage, 'readers'> {
  const { nextOffset, totalBytes, eof: isLast } = page;
  const hasBytes = page.bytes.length > 0;
  const event =
    hasBytes || isLast
      ? writePage(target, offset, page, { before: `id: ${nextOffset}\ndata: `, after: '\n\n' })
      : Buffer.from(':\n\n');
  return { event, nextOffset, hasBytes, isLast, reachesEnd: nextOffset >= totalBytes };
}
