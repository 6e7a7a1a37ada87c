// A session with a guest agent over HTTP/2, for machines that were created with a guest agent that does not speak
// frames yet (frame-transport.ts). A machine keeps its guest agent until it is created again. So this file,
// flood-watch.ts and frames.ts can go when a host may refuse machines and snapshots that were created before the agent
// spoke frames.
//
// The guest may be hostile, so this file limits the size of headers and bodies, its own memory use, and how long the
// guest may take.
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import type { Socket } from 'node:net';
import { FloodWatch } from './flood-watch.ts';
import { readFrames } from './frames.ts';
import type { StreamOffsets } from './guest.ts';
import {
  type Answer,
  bodyOf,
  type DuplexAnswer,
  type GuestRequest,
  type GuestTransport,
  MAX_JSON_BYTES,
  noAnswer,
  type StreamAnswer,
} from './guest-transport.ts';
import { WorkBudget } from './work-budget.ts';

const MAX_HEADER_BYTES = 8 * 1024;
/** How many received bytes of a job's stream may wait in memory to be read. */
const STREAM_WINDOW_BYTES = 1024 * 1024;
const SESSION_WINDOW_BYTES = 8 * 1024 * 1024;
/** How long a JSON body may take after its head. */
const BODY_TIMEOUT_MS = 20_000;

type Response = { status: number; stream: ClientHttp2Stream };

export class Http2Transport implements GuestTransport {
  readonly closed: Promise<void>;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #flood: FloodWatch;
  readonly #budget: WorkBudget;

  /** `socket`: a socket on which `openSession` has resolved with `http2`. */
  constructor(socket: Socket, budget = new WorkBudget()) {
    this.#budget = budget;
    this.#session = connect('http://guest', {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES, maxHeaderListSize: MAX_HEADER_BYTES },
      maxHeaderListPairs: 32,
      maxSessionMemory: 32,
      maxSettings: 16,
      maxOutstandingPings: 4,
    });
    this.#session.on('connect', () => {
      // The session may have been closed before it was connected.
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(SESSION_WINDOW_BYTES);
    });
    this.#socket = socket;
    this.#flood = new FloodWatch(
      () => socket.bytesRead,
      () => this.#end(new Error('the guest floods the host')),
    );
    this.closed = new Promise((resolve) => {
      this.#session.on('error', () => this.#end());
      // After GOAWAY no new request is possible, but the connection would stay open as long as a job's stream is open.
      this.#session.on('goaway', () => this.#end());
      this.#session.on('close', () => {
        this.#flood.end();
        socket.destroy();
        resolve();
      });
    });
  }

  close(): void {
    this.#end();
  }

  /** The time limit of the request is for the head of the response. */
  async json(request: GuestRequest): Promise<Answer> {
    const { status, stream } = await this.#request(request);
    return { status, text: await this.#body(stream, request) };
  }

  async stream(request: GuestRequest, from: StreamOffsets): Promise<StreamAnswer> {
    const { status, stream } = await this.#request(request);
    if (status >= 300) return { status, text: await this.#body(stream, request) };
    const onWork = (frames: number, bytes: number) => this.#budget.spend(frames, bytes);
    return { frames: readFrames(stream as AsyncIterable<Buffer>, from, onWork) };
  }

  /** Guest agents that speak HTTP/2 have no two-way streams, so they refuse. */
  duplex(request: GuestRequest): Promise<DuplexAnswer> {
    return this.json(request);
  }

  /**
   * Destroys the session and the socket. If only the session were destroyed, it would wait until the guest has read
   * everything that was written, perhaps for ever.
   */
  #end(error?: Error): void {
    this.#session.destroy(error);
    this.#socket.destroy();
  }

  /** Tells the flood watch of each piece of the stream's body. Node calls `push` for each data frame that arrives. */
  #watch(stream: ClientHttp2Stream): void {
    const push = stream.push.bind(stream);
    stream.push = (piece: Buffer | null) => {
      if (piece) this.#flood.onPiece(piece.length);
      return push(piece);
    };
  }

  async #body(stream: ClientHttp2Stream, request: GuestRequest): Promise<string> {
    const timer = setTimeout(() => stream.destroy(noAnswer(request)), Math.min(request.timeoutMs, BODY_TIMEOUT_MS));
    try {
      return await readBody(stream as AsyncIterable<Buffer>);
    } finally {
      clearTimeout(timer);
    }
  }

  #request(request: GuestRequest): Promise<Response> {
    const { method, path, timeoutMs } = request;
    const body = bodyOf(request);
    return new Promise((resolve, reject) => {
      if (this.#session.closed || this.#session.destroyed)
        return reject(new Error('the session with the guest is over'));
      const stream = this.#session.request(
        { ':method': method, ':path': path, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
        { endStream: body === undefined },
      );
      this.#watch(stream);
      const timer = setTimeout(() => {
        stream.close(constants.NGHTTP2_CANCEL);
        reject(noAnswer(request));
      }, timeoutMs);
      const settle =
        <A extends unknown[]>(action: (...args: A) => void) =>
        (...args: A) => {
          clearTimeout(timer);
          action(...args);
        };
      stream.once(
        'response',
        settle((headers) => resolve({ status: Number(headers[':status']), stream })),
      );
      stream.once('error', settle(reject));
      stream.once(
        'close',
        settle(() => reject(new Error('the session with the guest broke off'))),
      );
      if (body !== undefined) stream.end(body);
    });
  }
}

async function readBody(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > MAX_JSON_BYTES) throw new Error('the guest sent a body that is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
