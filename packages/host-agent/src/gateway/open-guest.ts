// Opens a session with one guest agent, in the gateway's process. How guests speak is only known here and in `guest/`.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { openSession } from '../guest/channel.ts';
import type { Guest } from '../guest/guest.ts';
import { GuestClient } from '../guest/guest-client.ts';
import { NotListening } from './sessions.ts';

/** Resolves when the guest has echoed the token. Rejects with {@link NotListening} when nobody listens on the socket. */
export async function openGuest(path: string, token: string, signal: AbortSignal): Promise<Guest> {
  const socket = await connectTo(path);
  await openSession(socket, token, signal);
  const guest = new GuestClient(socket);
  // Node reads bytes that came with the echo in the next turn, and fails when the session was closed before that.
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
