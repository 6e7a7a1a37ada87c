// Opens a WebSocket in Node, Deno and Bun. It uses the library `ws`, because the platform's own WebSocket does not
// report the HTTP status of a refusal, and cannot be paused when the reader is slow.
import type { IncomingMessage } from 'node:http';
import type { WebSocket } from 'ws';
import { ConnectionError } from '../errors.ts';
import { readError } from '../read-error.ts';
import type { SandbarError } from '../service-errors.ts';
import type { Socket, SocketEvents, SocketTarget } from './socket.ts';

/**
 * Resolves with an open WebSocket that is paused, so that no message is lost before the caller listens. Throws
 * SandbarError when the service refuses, ConnectionError when it does not answer, and the reason of `signal` after an
 * abort.
 */
export async function openSocket(
  { baseUrl, userAgent, path, protocol, authorization }: SocketTarget,
  signal: AbortSignal | undefined,
): Promise<Socket> {
  signal?.throwIfAborted();
  const { WebSocket } = await import('ws');
  const headers = { 'user-agent': userAgent, ...(authorization === undefined ? {} : { authorization }) };
  const url = `${baseUrl.replace(/^http/, 'ws')}${path}`;
  return new Promise<Socket>((resolve, reject) => {
    const socket = new WebSocket(url, protocol, { headers, perMessageDeflate: false });
    const onAbort = () => {
      reject(signal?.reason);
      socket.terminate();
    };
    const isDone = () => signal?.removeEventListener('abort', onAbort);
    signal?.addEventListener('abort', onAbort, { once: true });
    // Never remove this listener: an `error` event without a listener ends the process. A `close` event follows.
    socket.on('error', (error) => {
      isDone();
      reject(new ConnectionError(baseUrl, new Error('WebSocket', { cause: error })));
    });
    socket.once('open', () => {
      isDone();
      socket.pause();
      resolve(new NodeSocket(socket));
    });
    socket.once('unexpected-response', (_request, response: IncomingMessage) => {
      refusalOf(response)
        .then(reject, (error) => reject(new ConnectionError(baseUrl, error)))
        .finally(isDone);
    });
  });
}

class NodeSocket implements Socket {
  readonly hasPings = true;
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  get isOpen(): boolean {
    return this.#socket.readyState === this.#socket.OPEN;
  }

  get isPaused(): boolean {
    return this.#socket.isPaused;
  }

  listen({ onMessage, onPing, onClose }: SocketEvents): void {
    if (onPing) this.#socket.on('ping', onPing);
    this.#socket.on('message', (data: Buffer, isBinary: boolean) => onMessage(data, isBinary));
    this.#socket.once('close', (code, reason) => onClose(code, reason.toString()));
  }

  send(data: string | Uint8Array, done?: (error?: Error | null) => void): void {
    this.#socket.send(data, { binary: typeof data !== 'string' }, done);
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(code: number): void {
    this.#socket.close(code);
  }

  terminate(): void {
    this.#socket.terminate();
  }
}

async function refusalOf(response: IncomingMessage): Promise<SandbarError> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  const headers = Object.entries(response.headers).flatMap(([name, value]): [string, string][] =>
    typeof value === 'string' ? [[name, value]] : [],
  );
  const { statusCode: status = 500, statusMessage: statusText = '' } = response;
  return readError(new Response(Buffer.concat(chunks), { status, statusText, headers }));
}
