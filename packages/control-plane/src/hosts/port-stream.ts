// Connections to ports of machines on joined hosts. On the Unix socket a broken connection is recognised by a write
// that fails at once (port-socket.ts). Over a network such a write succeeds, and Node does not tell a TLS connection
// that was closed in order from one that was cut. So here the bytes travel as a guest stream, which says where they
// end.
import type { Duplex } from 'node:stream';
import type { HostStream } from './guest-stream.ts';
import { noteError } from './port-socket.ts';

/** Node's HTTP client calls these methods of every connection. A stream has no use for them. */
const SOCKET_METHODS = {
  setKeepAlive: ignore,
  setNoDelay: ignore,
  setTimeout: ignore,
  ref: ignore,
  unref: ignore,
};

/** Makes of an opened stream a connection that Node's HTTP client accepts. `wasCut` tells whether it broke. */
export function toPortConnection({ duplex }: HostStream): Duplex {
  noteError(duplex);
  return Object.assign(duplex, SOCKET_METHODS);
}

function ignore<T>(this: T): T {
  return this;
}
