// Finds out whether the client of a connection that is not being read is still there. A write of no bytes does not
// leave Node's TLS, so for a TLS connection this goes to the TCP connection below.
import type { Socket } from 'node:net';

const NOTHING = Buffer.alloc(0);
const transports = new WeakMap<Socket, Socket>();

/** Notes the TCP connection below a TLS connection. */
export function noteTransport(socket: Socket, transport: Socket): void {
  transports.set(socket, transport);
}

/**
 * Destroys the connection if the client is gone: a write of no bytes fails on a closed Unix socket, and on a TCP
 * connection that the client has reset. When the client has only closed its end, its kernel resets the connection after
 * a minute, and after some minutes if not all bytes of the client have arrived.
 */
export function probe(socket: Socket): void {
  (transports.get(socket) ?? socket).write(NOTHING);
}
