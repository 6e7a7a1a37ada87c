// Opens a WebSocket to the service. The library `ws` is used in place of the platform's WebSocket, because that tells no
// HTTP status when the service refuses, and reads on while nobody takes the data.
import type { IncomingMessage } from 'node:http';
import type { WebSocket } from 'ws';
import { type ApiError, ConnectionError } from './errors.ts';
import { readError } from './transport.ts';

export type { WebSocket };

export type WebSocketTarget = {
  baseUrl: string;
  userAgent: string;
  /** The path with its query. */
  path: string;
  protocol: string;
  /** The header Authorization. Absent when the path has a credential. */
  authorization?: string;
};

/**
 * Resolves with an open WebSocket that is paused, so that no message is lost before the caller listens. Throws ApiError
 * when the service refuses, ConnectionError when it does not answer, and the reason of `signal` after an abort.
 */
export async function openWebSocket(
  { baseUrl, userAgent, path, protocol, authorization }: WebSocketTarget,
  signal: AbortSignal | undefined,
): Promise<WebSocket> {
  signal?.throwIfAborted();
  const { WebSocket } = await import('ws');
  const headers = { 'user-agent': userAgent, ...(authorization === undefined ? {} : { authorization }) };
  const url = `${baseUrl.replace(/^http/, 'ws')}${path}`;
  const socket = new WebSocket(url, protocol, { headers, perMessageDeflate: false });
  const { promise, resolve, reject } = Promise.withResolvers<WebSocket>();
  const onAbort = () => {
    reject(signal?.reason);
    socket.terminate();
  };
  signal?.addEventListener('abort', onAbort, { once: true });
  // Stays for the life of the socket, because an error without a listener ends the process. `close` follows.
  socket.on('error', (error) => reject(new ConnectionError(baseUrl, new Error('WebSocket', { cause: error }))));
  socket.once('open', () => {
    socket.pause();
    resolve(socket);
  });
  socket.once('unexpected-response', (_request, response: IncomingMessage) => {
    refusalOf(response).then(reject, (error) => reject(new ConnectionError(baseUrl, error)));
  });
  return promise.finally(() => signal?.removeEventListener('abort', onAbort));
}

async function refusalOf(response: IncomingMessage): Promise<ApiError> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  const headers = Object.entries(response.headers).flatMap(([name, value]): [string, string][] =>
    typeof value === 'string' ? [[name, value]] : [],
  );
  const { statusCode: status = 500, statusMessage: statusText = '' } = response;
  return readError(new Response(Buffer.concat(chunks), { status, statusText, headers }));
}
