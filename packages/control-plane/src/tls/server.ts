// The HTTP server over TLS. A client that speaks plain HTTP on its port gets a 400 that says so, instead of a
// connection that breaks.
import type { Server as HttpServer, RequestListener, ServerOptions } from 'node:http';
import { createServer } from 'node:https';
import type { Socket } from 'node:net';
import { plainHttpResponse } from '../http/errors.ts';
import type { Certificates } from './certificates.ts';
import { TcpSockets } from './tcp-sockets.ts';

/** The first byte of a TLS connection: a handshake record. */
const HANDSHAKE = 0x16;
/** How much of a plain request is read before the answer, so that the client gets the answer and not a reset. */
const PLAIN_BYTES_MAX = 64 * 1024;
/** How long a client of plain HTTP may take to read the answer, milliseconds. */
const PLAIN_MS = 1_000;

/**
 * Creates a server. `handshakeMs`: how long a client may take to send the first byte, and then to finish the handshake.
 */
export function createTlsServer(
  certificates: Certificates,
  handshakeMs: number,
  options: ServerOptions,
  handler: RequestListener,
): HttpServer {
  const server = createServer({ ...options, handshakeTimeout: handshakeMs }, handler);
  certificates.serve(server);
  // Node's own listener begins the handshake.
  const [begin] = server.listeners('connection') as ((socket: Socket) => void)[];
  if (!begin) throw new Error('A TLS server of Node has a listener for connections.');
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    lookAtFirstByte(socket, handshakeMs, () => begin.call(server, socket));
  });
  new TcpSockets().watch(server);
  // Close a connection whose handshake failed or took too long. By itself, Node's HTTP server would keep it until it can
  // send an answer.
  server.prependListener('tlsClientError', (_error, socket) => socket.destroy());
  return server as unknown as HttpServer;
}

function lookAtFirstByte(socket: Socket, withinMs: number, beginTls: () => void): void {
  const timer = setTimeout(() => socket.destroy(), withinMs).unref();
  const onError = () => socket.destroy();
  socket.on('error', onError);
  socket.once('close', () => clearTimeout(timer));
  socket.once('readable', () => {
    const first: Buffer | null = socket.read(1);
    // The client closed the connection without a byte.
    if (first === null) {
      socket.destroy();
      return;
    }
    clearTimeout(timer);
    socket.unshift(first);
    if (first[0] !== HANDSHAKE) {
      refusePlainHttp(socket);
      return;
    }
    socket.off('error', onError);
    beginTls();
  });
}

function refusePlainHttp(socket: Socket): void {
  let read = 0;
  const timer = setTimeout(() => socket.destroy(), PLAIN_MS).unref();
  socket.once('close', () => clearTimeout(timer));
  socket.on('data', (bytes: Buffer) => {
    read += bytes.length;
    if (read > PLAIN_BYTES_MAX) socket.destroy();
  });
  socket.end(plainHttpResponse());
}
