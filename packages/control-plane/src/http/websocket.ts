// Lets a route answer with a WebSocket. A request for an upgrade is first routed like every other request, so that the
// same limits, hooks and errors apply, and a refusal is an ordinary HTTP answer.
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type WebSocket, WebSocketServer } from 'ws';
import { REQUEST_ID_HEADER } from './request-id.ts';

type Upgrade = { socket: Socket; head: Buffer };

const upgrades = new WeakMap<IncomingMessage, Upgrade>();
const requestIds = new WeakMap<IncomingMessage, string>();

/**
 * Whether Node hands a request over with its bare connection. All other offers to upgrade are ignored, such as that of
 * HTTP/2, which some clients send with ordinary requests.
 */
export const isWebSocketUpgrade = ({ method, headers }: IncomingMessage): boolean =>
  method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket';

/** Passes requests for a WebSocket on to the routes. Call it once for a server. */
export function acceptUpgrades({ server }: FastifyInstance): void {
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    // A route that opens a WebSocket never finishes the response.
    response.once('finish', () => socket.destroySoon());
    upgrades.set(request, { socket, head });
    server.emit('request', request, response);
  });
}

/** Returns the connection of a request for a WebSocket, and the bytes that arrived after its head. */
export const upgradeOf = (request: IncomingMessage): Upgrade | undefined => upgrades.get(request);

/** Throws `validation_error` for a request that asks for no WebSocket. */
export function requireUpgrade(request: FastifyRequest): void {
  if (upgrades.has(request.raw)) return;
  throw new ServiceError(
    'validation_error',
    'This path opens a WebSocket. The request must have Upgrade: websocket and Connection: Upgrade.',
  );
}

/** Aborted when the connection of a request closes, also after its upgrade. */
export function abortOnClose({ raw: { socket } }: FastifyRequest): AbortSignal {
  const controller = new AbortController();
  if (socket.destroyed) controller.abort();
  else socket.once('close', () => controller.abort());
  return controller.signal;
}

/**
 * Frees the request and the response of a WebSocket, which would take 10 KB for as long as the WebSocket is open.
 * Listeners for the close of the response are called when the connection closes.
 */
function letGo(response: ServerResponse, socket: Socket): void {
  const listeners = response.listeners('close') as (() => void)[];
  response.removeAllListeners('close');
  response.detachSocket(socket);
  for (const listener of listeners) socket.once('close', listener);
}

/** Opens the WebSockets of a route. A client may offer the subprotocol `protocol`, or none. */
export class WebSocketRoute {
  readonly #server: WebSocketServer;

  /** `messageBytes`: a longer message of a client ends its connection. */
  constructor({ protocol, messageBytes }: { protocol: string; messageBytes: number }) {
    this.#server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // Compression takes 300 KB of memory for each connection.
      perMessageDeflate: false,
      maxPayload: messageBytes,
      handleProtocols: (offered) => offered.has(protocol) && protocol,
    });
    this.#server.on('headers', (headers, request) => headers.push(`${REQUEST_ID_HEADER}: ${requestIds.get(request)}`));
  }

  /**
   * Turns a request into a WebSocket. It is paused, so that no message is lost before the caller listens. Throws when
   * the client went away, or when the handshake is malformed. In the latter case the client already has an answer.
   */
  open(request: FastifyRequest, reply: FastifyReply): Promise<WebSocket> {
    requireUpgrade(request);
    const { raw } = request;
    const { socket, head } = upgrades.get(raw) as Upgrade;
    requestIds.set(raw, request.id);
    reply.hijack();
    return new Promise((resolve, reject) => {
      const onClose = () => reject(new Error('The client went away before its WebSocket was open.'));
      socket.once('close', onClose);
      this.#server.handleUpgrade(raw, socket, head, (webSocket) => {
        socket.removeListener('close', onClose);
        letGo(reply.raw, socket);
        webSocket.pause();
        resolve(webSocket);
      });
      if (socket.destroyed) onClose();
    });
  }
}
