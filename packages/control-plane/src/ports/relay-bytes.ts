// Carries bytes between the WebSocket of a client and a connection to a port, in bounded memory: neither side is read
// while the other takes nothing.
import { END_OF_BYTES } from '@sandbar/contract/port.ts';
import type { RawData, WebSocket } from 'ws';
import type { MachineStream } from '../guest/stream.ts';
import { toServiceError } from '../http/errors.ts';
import { closeOf } from '../terminals/closes.ts';

/** The machine is not read while more bytes than this wait for the client. */
const WAITING_BYTES = 256 * 1024;
const ENDED = 1000;
const UNSUPPORTED = 1003;

/** Relays until one side ends. `heartbeatMs`: the interval of pings. Expects a paused WebSocket. */
export function relayBytes(socket: WebSocket, { duplex, result }: MachineStream, heartbeatMs: number): void {
  watchClient(socket, heartbeatMs);
  // The client broke the protocol. The library closes the connection, so there is nothing to do.
  socket.on('error', () => undefined);
  socket.once('close', () => duplex.destroy());
  socket.on('message', (data: RawData, isBinary) => {
    if (isBinary && !duplex.writableEnded) {
      if (!duplex.write(data)) socket.pause();
      return;
    }
    if (isBinary || String(data) !== END_OF_BYTES) {
      socket.close(UNSUPPORTED, 'There are bytes, and at their end the one text message {"type":"end"}.');
    }
    duplex.end();
    // The WebSocket may still be paused, and after `end` no `drain` comes that would resume it.
    socket.resume();
  });
  duplex.on('drain', () => socket.resume());
  duplex.on('data', (chunk: Buffer) => {
    socket.send(chunk, { binary: true }, () => {
      if (socket.bufferedAmount <= WAITING_BYTES) duplex.resume();
    });
    if (socket.bufferedAmount > WAITING_BYTES) duplex.pause();
  });
  const isRead = new Promise<void>((resolve) => duplex.once('end', resolve));
  Promise.all([result, isRead]).then(
    () => socket.close(ENDED),
    (error: unknown) => {
      const { code, reason } = closeOf(toServiceError(error));
      socket.close(code, reason);
    },
  );
  socket.resume();
}

/** Pings the client, and ends the connection when nothing comes back between two pings. */
function watchClient(socket: WebSocket, heartbeatMs: number): void {
  let isAlive = true;
  const noteLife = () => {
    isAlive = true;
  };
  const timer = setInterval(() => {
    // While the connection is paused, nothing is read from it, so a missing pong says nothing.
    if (!isAlive && !socket.isPaused) socket.terminate();
    isAlive = false;
    socket.ping();
  }, heartbeatMs).unref();
  socket.on('message', noteLife);
  socket.on('pong', noteLife);
  socket.once('close', () => clearInterval(timer));
}
