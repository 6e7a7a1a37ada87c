// Finds the TCP connection below a TLS connection. Node does not tell, so they are matched by the client's address and
// port, which no two open connections share.
import type { Socket } from 'node:net';
import type { Server, TLSSocket } from 'node:tls';

const tcpSockets = new WeakMap<Socket, Socket>();

/** Returns the TCP connection below a TLS connection, and any other connection itself. */
export const tcpSocketOf = (socket: Socket): Socket => tcpSockets.get(socket) ?? socket;

export class TcpSockets {
  readonly #open = new Map<string, Socket>();

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      const name = nameOf(socket);
      this.#open.set(name, socket);
      socket.once('close', () => {
        if (this.#open.get(name) === socket) this.#open.delete(name);
      });
    });
    server.prependListener('secureConnection', (socket: TLSSocket) => {
      const below = this.#open.get(nameOf(socket));
      if (below) tcpSockets.set(socket, below);
    });
  }
}

const nameOf = ({ remoteAddress, remotePort, localAddress }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress}`;
