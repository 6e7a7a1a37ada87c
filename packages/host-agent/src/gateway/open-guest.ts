// Opens a session with one guest agent, in the gateway's process. Only this file and `guest/` know the guest agent's
// protocol.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { openSession } from '../guest/channel.ts';
import { FrameTransport } from '../guest/frame-transport.ts';
import type { Guest } from '../guest/guest.ts';
import { GuestClient } from '../guest/guest-client.ts';
import { Http2Transport } from '../guest/http2-transport.ts';
import { NotListening } from './sessions.ts';

/**
 * Resolves when the guest has echoed the token. Rejects with {@link NotListening} when nobody listens on the socket.
 */
export async function openGuest(path: string, token: string, signal: AbortSignal): Promise<Guest> {
  const socket = await connectTo(path);
  const protocol = await openSession(socket, token, signal);
  if (protocol === 'frames') return new GuestClient(new FrameTransport(socket));
  const guest = new GuestClient(new Http2Transport(socket));
  // If bytes arrived together with the echo, Node reads them in the next turn of the event loop, and fails when the
  // session was closed before. So the caller gets the session only after that turn.
  await setImmediate();
  return guest;
}

async function connectTo(path: string): Promise<Socket> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return socket;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw code === 'ECONNREFUSED' ? new NotListening(message) : error;
  }
}
