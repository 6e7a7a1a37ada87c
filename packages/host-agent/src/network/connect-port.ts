// Connects the host to a TCP port of a machine. Only replies of the machine come back over the connection: the packet
// filter (rules.ts) lets the host begin connections to machines and never the other way round.
import { connect, type Socket } from 'node:net';

/**
 * How long the machine may take to accept, milliseconds. Together with the attempt of the guest agent that follows
 * (guest-agent/internal/ports), it stays below the 10 s that a client waits for a connection.
 */
const CONNECT_MS = 4_000;

/** Connects to a port. Undefined when the machine refuses the connection or does not answer. */
export function connectPort(privateIp: string, port: number): Promise<Socket | undefined> {
  const { promise, resolve } = Promise.withResolvers<Socket | undefined>();
  const socket = connect({ host: privateIp, port, noDelay: true });
  const giveUp = () => {
    socket.destroy();
    resolve(undefined);
  };
  const timer = setTimeout(giveUp, CONNECT_MS);
  socket.once('connect', () => {
    clearTimeout(timer);
    socket.off('error', giveUp);
    resolve(socket);
  });
  socket.once('error', giveUp);
  socket.once('close', () => clearTimeout(timer));
  return promise;
}
