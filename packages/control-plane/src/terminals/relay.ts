// Carries bytes between the WebSocket of a client and the stream of a terminal, in bounded memory: the guest's output
// is not read while the client takes nothing, and the client's input is not read while the terminal takes nothing.
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  GuestTerminalResult,
  type TerminalExit,
  TerminalResize,
  type TerminalStart,
} from '@sandbar/contract/terminal.ts';
import { Value } from 'typebox/value';
import type { RawData, WebSocket } from 'ws';
import { checkAnswer } from '../guest/answer.ts';
import { toServiceError } from '../http/errors.ts';
import { type Close, closeOf, closeOfExit, tooSlow } from './closes.ts';
import type { TerminalStream } from './open.ts';

export type Size = { cols: number; rows: number };

export type Relayed = {
  terminalId: string;
  /** Whether the client speaks the subprotocol, in which text frames are control messages. */
  isFramed: boolean;
  /** The interval of pings, ms. A client that answers none for two intervals has gone away. */
  heartbeatMs: number;
  resize: (size: Size) => Promise<void>;
};

/** The guest is not read while more bytes than this wait for the client. */
const WAITING_BYTES = 64 * 1024;

/** Relays until one side ends. Resolves with the reason when the WebSocket is closed. Expects a paused WebSocket. */
export function relayTerminal(socket: WebSocket, stream: TerminalStream, relayed: Relayed): Promise<Close> {
  return new Relay(socket, stream, relayed).run();
}

class Relay {
  readonly #socket: WebSocket;
  readonly #stream: TerminalStream;
  readonly #relayed: Relayed;
  readonly #resize: (size: Size) => void;
  /** False when nothing came from the client since the last ping. */
  #isAlive = true;
  /** Whether the client is not read because the terminal takes nothing. */
  #isInputFull = false;
  /** Whether the terminal ever had to wait for the client. */
  #wasBehind = false;
  /** Why this side closed the connection. */
  #close: Close | undefined;

  constructor(socket: WebSocket, stream: TerminalStream, relayed: Relayed) {
    this.#socket = socket;
    this.#stream = stream;
    this.#relayed = relayed;
    this.#resize = oneAtATime(relayed.resize, (error) => this.#end(closeOf(toServiceError(error))));
  }

  async run(): Promise<Close> {
    const { promise: closed, resolve } = Promise.withResolvers<Close>();
    const { duplex } = this.#stream;
    const { heartbeatMs, isFramed, terminalId } = this.#relayed;
    const heartbeat = setInterval(() => this.#beat(), heartbeatMs).unref();
    this.#socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    this.#socket.on('pong', () => {
      this.#isAlive = true;
    });
    // The client broke the protocol. The library closes the connection, so there is nothing to do.
    this.#socket.on('error', () => undefined);
    this.#socket.once('close', (code, reason) => {
      clearInterval(heartbeat);
      duplex.destroy();
      resolve(this.#close ?? { code, reason: reason.toString() });
    });
    duplex.on('error', () => undefined);
    if (isFramed) this.#sendMessage({ type: 'start', terminal_id: terminalId, offset: this.#stream.offset });
    duplex.on('data', (chunk: Buffer) => this.#send(chunk));
    duplex.on('drain', () => this.#takeInput());
    this.#socket.resume();
    this.#endWithStream().catch((error: unknown) => this.#end(closeOf(toServiceError(error))));
    return closed;
  }

  /** Waits for the end of the program and for the last byte of its output, and closes the connection. */
  async #endWithStream(): Promise<void> {
    const { duplex, result } = this.#stream;
    const drained = new Promise<void>((resolve) => duplex.once('end', resolve));
    const exit = await result.catch((error: unknown) => {
      // The guest ended the stream because the client took no data for too long. The guest's error arrives after all
      // earlier output, so the client takes data again by now and can receive the close.
      if (this.#wasBehind && isConflict(error)) this.#end(tooSlow);
      throw error;
    });
    const { exit_code, signal } = checkAnswer(GuestTerminalResult, exit);
    await drained;
    if (this.#relayed.isFramed) this.#sendMessage({ type: 'exit', code: exit_code, signal });
    this.#end(closeOfExit({ exit_code, signal }));
  }

  #send(chunk: Buffer): void {
    const { duplex } = this.#stream;
    this.#socket.send(chunk, { binary: true }, () => {
      if (duplex.isPaused() && !this.#isBehind()) duplex.resume();
    });
    if (!this.#isBehind()) return;
    this.#wasBehind = true;
    duplex.pause();
  }

  #isBehind(): boolean {
    return this.#socket.bufferedAmount > WAITING_BYTES;
  }

  #sendMessage(message: TerminalStart | TerminalExit): void {
    this.#socket.send(JSON.stringify(message));
  }

  #receive(data: RawData, isBinary: boolean): void {
    this.#isAlive = true;
    const { duplex } = this.#stream;
    if (this.#relayed.isFramed && !isBinary) this.#control(data.toString());
    else if (duplex.writable && !duplex.write(data)) {
      this.#isInputFull = true;
      this.#socket.pause();
    }
  }

  #takeInput(): void {
    this.#isInputFull = false;
    this.#isAlive = true;
    this.#socket.resume();
  }

  #control(text: string): void {
    const message = parse(text);
    if (Value.Check(TerminalResize, message)) {
      this.#resize({ cols: message.cols, rows: message.rows });
      return;
    }
    const detail =
      'A text frame must be {"type":"resize","cols":1 to 1000,"rows":1 to 1000}. Data goes in binary frames.';
    this.#end(closeOf(new ServiceError('validation_error', detail)));
  }

  /**
   * Pings the client. Does not ping while the client's data is not read, because the pong would wait behind that data.
   */
  #beat(): void {
    if (this.#isInputFull) return;
    if (!this.#isAlive && this.#isBehind()) this.#end(tooSlow);
    else if (!this.#isAlive) this.#socket.terminate();
    this.#isAlive = false;
    this.#socket.ping();
  }

  /** Closes the connection after everything that was sent before. Only the first reason counts. */
  #end(close: Close): void {
    if (this.#close !== undefined || this.#socket.readyState !== this.#socket.OPEN) return;
    this.#close = close;
    // Resume reading, because the client answers the close.
    this.#socket.resume();
    this.#socket.close(close.code, close.reason);
    this.#stream.duplex.destroy();
  }
}

const isConflict = (error: unknown): boolean => error instanceof ServiceError && error.code === 'conflict';

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Runs `work` for one value at a time. Of the values that come meanwhile, only the last one is kept. */
function oneAtATime<T>(work: (value: T) => Promise<void>, onError: (error: unknown) => void): (value: T) => void {
  let next: { value: T } | undefined;
  let isBusy = false;
  return async (value) => {
    next = { value };
    if (isBusy) return;
    isBusy = true;
    while (next !== undefined) {
      const { value } = next;
      next = undefined;
      await work(value).catch(onError);
    }
    isBusy = false;
  };
}
