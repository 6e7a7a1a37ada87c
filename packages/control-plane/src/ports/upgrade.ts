// Relays a WebSocket: checks and rewrites the request like every other request, and then passes the bytes on unread.
// When the machine refuses the WebSocket, its answer is relayed like every other answer.
import { type IncomingMessage, request as openRequest, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { PortConnections } from './connections.ts';
import { toClient, toMachine } from './headers.ts';
import { explain, noAnswer, type Relayed, sendAnswer } from './relay.ts';

export type Upgrading = {
  request: IncomingMessage;
  /** Carries the answer when the machine refuses the WebSocket. Uses the socket of the request. */
  response: ServerResponse;
  /** The first bytes of the WebSocket, which arrived with the request. */
  head: Buffer;
  signal: AbortSignal;
};

/**
 * Relays a WebSocket until one side ends it, or `signal` is aborted. Rejects as {@link relayRequest} does, before
 * anything was sent to the client.
 */
export function relayUpgrade(
  connections: PortConnections,
  { target, path, forwarded, frameOrigins }: Relayed,
  { request, response, head, signal }: Upgrading,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const { socket } = request;
  const upstream = openRequest({
    ...connections.optionsFor(target, true),
    method: request.method,
    path,
    headers: [...toMachine(request.rawHeaders, forwarded), 'Connection', 'Upgrade', 'Upgrade', 'websocket'],
  });
  upstream.maxHeadersCount = 0;
  const end = () => socket.destroy();
  signal.addEventListener('abort', end, { once: true });
  socket.once('close', () => {
    signal.removeEventListener('abort', end);
    upstream.destroy();
    resolve();
  });
  upstream.once('upgrade', (answer: IncomingMessage, machine: Duplex, first: Buffer) => {
    const headers = toClient(answer.rawHeaders, frameOrigins);
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\n${headText(headers)}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    );
    if (first.length > 0) machine.unshift(first);
    if (head.length > 0) socket.unshift(head);
    join(socket, machine);
  });
  upstream.once('response', (answer) => {
    try {
      sendAnswer(answer, response, false, frameOrigins);
    } catch (error) {
      reject(noAnswer(target.port, error as Error));
    }
  });
  upstream.once('error', (error) => {
    reject(explain(target.port, upstream, error));
  });
  upstream.end();
  return promise;
}

/** Node's parser has checked the fields, so none has a line break in it. */
function headText(headers: readonly string[]): string {
  let text = '';
  for (let at = 0; at < headers.length; at += 2) text += `${headers[at]}: ${headers[at + 1]}\r\n`;
  return text;
}

/** Passes bytes both ways. Passes on the end of either side. When one side breaks, destroys the other. */
export function join(one: Duplex, other: Duplex): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => to.destroy());
    from.once('close', () => {
      if (!from.readableEnded) to.destroy();
    });
    from.pipe(to);
  }
}
