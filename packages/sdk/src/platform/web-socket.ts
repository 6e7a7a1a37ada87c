// Opens a WebSocket in a browser. A browser does not report why a connection was refused, so every failure is a
// ConnectionError. It cannot pause a connection, so messages wait in memory while this socket is paused. It does not
// report pings.
import { ConfigurationError, ConnectionError } from '../errors.ts';
import type { Socket, SocketEvents, SocketTarget } from './socket.ts';

/**
 * Throws ConnectionError, or the signal's reason. Throws ConfigurationError when the target needs the header
 * `Authorization`, which a browser cannot send.
 */
export async function openSocket(
  { baseUrl, path, protocol, authorization }: SocketTarget,
  signal: AbortSignal | undefined,
): Promise<Socket> {
  signal?.throwIfAborted();
  if (authorization !== undefined) {
    throw new ConfigurationError('a browser cannot open this connection, because its WebSocket sends no key');
  }
  const socket = new WebSocket(`${baseUrl.replace(/^http/, 'ws')}${path}`, protocol);
  socket.binaryType = 'arraybuffer';
  const opened = new BrowserSocket(socket);
  return new Promise<Socket>((resolve, reject) => {
    const onAbort = () => {
      reject(signal?.reason);
      socket.close();
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    const isDone = () => signal?.removeEventListener('abort', onAbort);
    socket.addEventListener('open', () => {
      isDone();
      resolve(opened);
    });
    socket.addEventListener('error', () => {
      isDone();
      reject(new ConnectionError(baseUrl, new Error('the WebSocket was refused or broke')));
    });
  });
}

type Waiting = { data: Uint8Array; isBinary: boolean } | { code: number; reason: string };

class BrowserSocket implements Socket {
  readonly hasPings = false;
  readonly #socket: WebSocket;
  #events: SocketEvents | undefined;
  #isPaused = true;
  #waiting: Waiting[] = [];

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }: { data: string | ArrayBuffer }) => {
      const isBinary = typeof data !== 'string';
      const bytes = isBinary ? new Uint8Array(data) : new TextEncoder().encode(data);
      this.#deliver({ data: bytes, isBinary });
    });
    socket.addEventListener('close', ({ code, reason }) => this.#deliver({ code, reason }));
  }

  get isOpen(): boolean {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  listen(events: SocketEvents): void {
    this.#events = events;
  }

  send(data: string | Uint8Array, done?: (error?: Error | null) => void): void {
    this.#socket.send(data as string | Uint8Array<ArrayBuffer>);
    done?.();
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    while (!this.#isPaused) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      this.#report(next);
    }
  }

  close(code: number): void {
    this.#socket.close(code);
  }

  terminate(): void {
    this.#socket.close();
  }

  #deliver(event: Waiting): void {
    if (this.#isPaused || this.#waiting.length > 0) this.#waiting.push(event);
    else this.#report(event);
  }

  #report(event: Waiting): void {
    if ('code' in event) this.#events?.onClose(event.code, event.reason);
    else this.#events?.onMessage(event.data, event.isBinary);
  }
}
