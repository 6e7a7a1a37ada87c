// A TCP connection to a port of a machine, carried over a WebSocket. Both directions wait for their reader.
import { Duplex } from 'node:stream';
import { END_OF_BYTES, PORT_BOUNDS, PORT_PROTOCOL } from '@sandbar/contract/port-bounds.ts';
import { ConnectionError } from './errors.ts';
import type { Transport } from './transport.ts';
import { openWebSocket, type WebSocket } from './web-socket.ts';

/** The close code after the program has ended the connection. */
const ENDED = 1000;

/** Throws ApiError when the service refuses, ConnectionError when it does not answer. */
export async function connectPort(transport: Transport, path: string, signal?: AbortSignal): Promise<Duplex> {
  const { baseUrl, userAgent, authorization } = transport;
  const target = { baseUrl, userAgent, authorization, path, protocol: PORT_PROTOCOL };
  return new PortConnection(await openWebSocket(target, signal), baseUrl);
}

class PortConnection extends Duplex {
  readonly #socket: WebSocket;

  /** `socket`: open and paused. */
  constructor(socket: WebSocket, baseUrl: string) {
    super();
    this.#socket = socket;
    socket.on('message', (data: Buffer) => {
      if (!this.push(data)) socket.pause();
    });
    socket.once('close', (code, reason) => {
      if (code === ENDED) this.push(null);
      else
        this.destroy(
          new ConnectionError(baseUrl, new Error(`${reason.toString() || 'the connection broke'} (${code})`)),
        );
    });
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(END_OF_BYTES, done);
    else done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.terminate();
    done(error);
  }

  /** Sends a chunk in messages that are short enough. */
  #send(chunk: Buffer, done: (error?: Error | null) => void): void {
    const part = chunk.subarray(0, PORT_BOUNDS.messageBytes);
    const rest = chunk.subarray(part.length);
    this.#socket.send(part, { binary: true }, (error) => {
      if (error || rest.length === 0) done(error);
      else this.#send(rest, done);
    });
  }
}
