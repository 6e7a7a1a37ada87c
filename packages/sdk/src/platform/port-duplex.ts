// A TCP connection to a port of a machine, as a stream of Node. The bytes travel over a WebSocket. In both directions a
// slow reader slows the writer down.
import { Duplex } from 'node:stream';
import { END_OF_BYTES, PORT_BOUNDS } from '@sandbar/contract/port-bounds.ts';
import { ConnectionError } from '../errors.ts';
import type { Socket } from './socket.ts';

/** The service closes the WebSocket with this code when the program in the machine has ended the connection. */
const ENDED = 1000;

/** `socket` must be open and paused. */
export function toDuplex(socket: Socket, baseUrl: string): Duplex {
  return new PortDuplex(socket, baseUrl);
}

class PortDuplex extends Duplex {
  readonly #socket: Socket;

  constructor(socket: Socket, baseUrl: string) {
    super();
    this.#socket = socket;
    socket.listen({
      onMessage: (data) => {
        if (!this.push(data)) socket.pause();
      },
      onClose: (code, reason) => {
        if (code === ENDED) this.push(null);
        else this.destroy(new ConnectionError(baseUrl, new Error(`${reason || 'the connection broke'} (${code})`)));
      },
    });
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#socket.isOpen) this.#socket.send(END_OF_BYTES, done);
    else done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.terminate();
    done(error);
  }

  /** Sends a chunk in messages of at most `PORT_BOUNDS.messageBytes`. */
  #send(chunk: Buffer, done: (error?: Error | null) => void): void {
    const part = chunk.subarray(0, PORT_BOUNDS.messageBytes);
    const rest = chunk.subarray(part.length);
    this.#socket.send(part, (error) => {
      if (error || rest.length === 0) done(error);
      else this.#send(rest, done);
    });
  }
}
