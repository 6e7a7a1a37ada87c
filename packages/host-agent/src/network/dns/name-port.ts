// Opens the DNS port for machines as plain file descriptors, which the name relay's process inherits (name-relay.ts).
// Node's own sockets would read incoming data in the agent, which must not parse data from machines.
import { closeSync } from 'node:fs';
import { endianness } from 'node:os';
import { getSystemErrorName } from 'node:util';
import koffi from 'koffi';

const DNS_PORT = 53;
/** Constants from sys/socket.h, which Node does not export. */
const AF_INET = 2;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
/** How many connections may wait while no relay runs. Node has the same default. */
const BACKLOG = 511;

const libc = koffi.load('libc.so.6');
const socket = libc.func('int socket(int domain, int type, int protocol)');
const setsockopt = libc.func('int setsockopt(int fd, int level, int name, const int *value, unsigned int length)');
const bind = libc.func('int bind(int fd, const uint8_t *address, unsigned int length)');
const listen = libc.func('int listen(int fd, int backlog)');

/** Descriptors of sockets that are bound to the DNS port. */
export type NamePort = { udp: number; tcp: number };

/**
 * Listens on port 53 of the IPv4 address. Incoming data waits in the kernel until the relay reads it. Throws when the
 * port is in use.
 */
export function openNamePort(address: string): NamePort {
  const udp = bound(address, SOCK_DGRAM);
  try {
    const tcp = bound(address, SOCK_STREAM);
    try {
      check(listen(tcp, BACKLOG), address);
      return { udp, tcp };
    } catch (error) {
      closeSync(tcp);
      throw error;
    }
  } catch (error) {
    closeSync(udp);
    throw error;
  }
}

export function closeNamePort({ udp, tcp }: NamePort): void {
  for (const fd of [udp, tcp]) closeSync(fd);
}

function bound(address: string, type: number): number {
  const fd = check(socket(AF_INET, type | SOCK_CLOEXEC, 0), address);
  try {
    // Allows binding the port while connections of an earlier agent are still closing.
    if (type === SOCK_STREAM) check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, [1], 4), address);
    const place = socketAddress(address);
    check(bind(fd, place, place.length), address);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Returns a struct sockaddr_in. */
function socketAddress(address: string): Buffer {
  const bytes = Buffer.alloc(16);
  if (endianness() === 'LE') bytes.writeUInt16LE(AF_INET, 0);
  else bytes.writeUInt16BE(AF_INET, 0);
  bytes.writeUInt16BE(DNS_PORT, 2);
  bytes.set(address.split('.').map(Number), 4);
  return bytes;
}

/** Returns the result of a system call. Throws when it is -1. */
function check(result: number, address: string): number {
  if (result >= 0) return result;
  const name = getSystemErrorName(-koffi.errno());
  if (name !== 'EADDRINUSE') throw new Error(`port ${DNS_PORT} of ${address} cannot be opened: ${name}`);
  throw new Error(
    `Port ${DNS_PORT} of ${address}, where machines resolve names, is in use: set SANDBAR_SUBNET to another network, ` +
      'or let the name server that listens on every address of this host listen on its own only',
  );
}
