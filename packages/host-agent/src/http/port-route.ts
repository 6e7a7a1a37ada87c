// The route of the host API for connections to ports of machines. After its 101 the Unix connection carries the bytes
// as they are, without the chunks of a guest stream, which would take most of the time of a large transfer.
//
// The end of the machine's bytes and a broken connection must look different. After a good end this side shuts down its
// writing only and stays open until the client closes. Otherwise it closes, and the client's next write fails. With
// TLS, Node reports both ends in the same way. So this route refuses TLS connections; clients that use TLS open the
// guest stream `ports.connect` instead.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { HOST_PATHS, PORT_UPGRADE } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import type { GuestStream } from '../guest/guest-stream.ts';
import type { GuestMachines } from './guest-routes.ts';

const PATH = new RegExp(`^${HOST_PATHS.port.replace(':id', '([0-9a-f-]{36})').replace(':port', '(\\d{1,5})')}$`);

/** `toError` turns anything thrown into the error that the client is told. */
export function addPortRoute(
  server: FastifyInstance,
  machines: GuestMachines,
  toError: (error: unknown) => ServiceError,
): void {
  const open = new Set<Socket>();
  // The server no longer manages these connections after their upgrade, and would wait for them without end.
  server.addHook('preClose', async () => {
    for (const socket of open) socket.destroy();
  });
  server.get(HOST_PATHS.port, () => {
    throw new ServiceError('validation_error', `a connection to a port needs Upgrade: ${PORT_UPGRADE}`);
  });
  server.server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    open.add(socket.once('close', () => open.delete(socket)));
    socket.on('error', () => socket.destroy());
    if (socket instanceof TLSSocket) {
      const refusal = new ServiceError('validation_error', 'over TLS, open the stream ports.connect instead');
      socket.end(refusalOf(refusal));
      return;
    }
    connect(machines, request).then(
      (stream) => {
        if (head.length > 0) socket.unshift(head);
        relay(stream, socket);
      },
      (error: unknown) => socket.end(refusalOf(toError(error))),
    );
  });
}

async function connect(machines: GuestMachines, { url = '', headers }: IncomingMessage): Promise<GuestStream> {
  const [, id, port] = PATH.exec(url) ?? [];
  if (id === undefined || headers.upgrade !== PORT_UPGRADE) {
    throw new ServiceError('internal_error', 'the host agent has no such call: is it older than the control plane?');
  }
  return machines.get(id).openStream('ports.connect', JSON.stringify({ port: Number(port) }));
}

function refusalOf({ status, code, message }: ServiceError): string {
  const body = JSON.stringify({ code, detail: message });
  return (
    `HTTP/1.1 ${status} Refused\r\ncontent-type: application/json; charset=utf-8\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}

function relay({ duplex, result }: GuestStream, socket: Socket): void {
  duplex.on('error', () => {});
  socket.once('close', () => duplex.destroy());
  if (socket.destroyed) {
    duplex.destroy();
    return;
  }
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${PORT_UPGRADE}\r\n\r\n`);
  duplex.pipe(socket, { end: false });
  socket.pipe(duplex, { end: false });
  // The client ends its direction only when it closes the connection.
  socket.once('end', () => socket.destroy());
  const isRead = new Promise<void>((resolve) => duplex.once('end', resolve));
  Promise.all([result, isRead]).then(
    () => {
      socket.end();
      // The machine takes nothing more. Read and drop what the client still sends, so that the end of the connection is
      // seen.
      socket.unpipe(duplex);
      socket.resume();
    },
    () => socket.destroy(),
  );
}
