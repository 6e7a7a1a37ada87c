// Opens connections to ports of machines through the agent of this computer. Each is a connection of its own to the
// agent's Unix socket, which carries the bytes as they are.
import { Agent, type IncomingMessage, request as startRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ServiceError } from '@sandbar/contract/errors.ts';
import { PORT_UPGRADE } from '@sandbar/contract/host-api.ts';

export type PortErrors = {
  /** The host refused, with the text of its answer. */
  refused(status: number, body: string): ServiceError;
  /** The connection to the host could not be made, or it broke. */
  broken(cause: unknown): ServiceError;
};

const agent = new Agent({ keepAlive: false });
const cut = new WeakSet<Duplex>();
const PROBE = Buffer.from([0]);

/** Whether a connection broke before all its bytes arrived: the machine, its host or the program broke it. */
export const wasCut = (connection: Duplex): boolean => cut.has(connection);

/** Counts an error of the connection as a cut. Call it before another listener of `error` is added. */
export function noteError(connection: Duplex): void {
  connection.on('error', () => cut.add(connection));
}

/**
 * Opens a connection, with `more` headers. When `signal` is aborted, it is destroyed. Rejects with a `ServiceError`, or
 * with the reason of `signal`.
 */
export function openPortSocket(
  socketPath: string,
  path: string,
  signal: AbortSignal,
  errors: PortErrors,
  more: Record<string, string> = {},
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const headers = { ...more, connection: 'Upgrade', upgrade: PORT_UPGRADE };
  const request = startRequest({ agent, socketPath, path, headers });
  const onAbort = () => request.destroy(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  request.once('upgrade', (_answer: IncomingMessage, socket: Socket, head: Buffer) => {
    signal.removeEventListener('abort', onAbort);
    const onEnd = () => socket.destroy();
    signal.addEventListener('abort', onEnd, { once: true });
    socket.once('close', () => signal.removeEventListener('abort', onEnd));
    noteCut(socket);
    if (head.length > 0) socket.unshift(head);
    resolve(socket);
  });
  request.once('response', (answer: IncomingMessage) => {
    answer.toArray().then(
      (chunks) => reject(errors.refused(answer.statusCode ?? 0, Buffer.concat(chunks as Buffer[]).toString())),
      (error: unknown) => reject(errors.broken(error)),
    );
  });
  request.once('error', (error) => reject(signal.aborted ? signal.reason : errors.broken(error)));
  request.end();
  return promise;
}

/**
 * At the end of the bytes, finds out whether they are complete. After a good end the host still reads; after any other
 * end it has closed the connection, and a write fails at once. This must be the first listener of `end`.
 */
function noteCut(socket: Socket): void {
  // Without this, Node would end our direction too when the host ends its direction, so the probe could not be written.
  socket.allowHalfOpen = true;
  noteError(socket);
  socket.prependListener('end', () => {
    if (!socket.writableEnded) socket.write(PROBE);
    if (socket.errored) cut.add(socket);
    socket.end();
  });
}
