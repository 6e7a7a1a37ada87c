// Opens a session on the machine's virtio-serial port. The port has no connections of its own: bytes of an earlier
// session may still be on their way, and a restored guest never saw the earlier one end. So each session begins with the
// machine's token and a fresh epoch; the guest drops what it was doing and echoes both; all that came before the echo is
// thrown away.
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';

const TOKEN_BYTES = 32;
const EPOCH_BYTES = 8;
/** What an earlier session may have left on its way: its window and what lies in the port, with much room. */
const MAX_STALE_BYTES = 32 * 1024 * 1024;

/** A token for a new machine, 64 hex digits. */
export function newChannelToken(): string {
  return randomBytes(TOKEN_BYTES).toString('hex');
}

/**
 * Says hello on a connected socket and resolves when the guest has answered; the socket then carries HTTP/2, its first
 * bytes put back. Rejects when the socket closes or `signal` aborts first (the socket is destroyed then).
 */
export function openSession(socket: Socket, token: string, signal: AbortSignal): Promise<void> {
  const hello = Buffer.concat([Buffer.from(token, 'hex'), randomBytes(EPOCH_BYTES)]);
  return new Promise((resolve, reject) => {
    let seen: Buffer = Buffer.alloc(0);
    let stale = 0;
    const settle = (error?: Error) => {
      socket.off('data', onData).off('close', onClose).off('error', onError);
      signal.removeEventListener('abort', onAbort);
      if (error) {
        socket.destroy();
        reject(error);
      } else resolve();
    };
    const onData = (chunk: Buffer) => {
      stale += chunk.length;
      if (stale > MAX_STALE_BYTES) return settle(new Error('the guest agent sends, but does not answer'));
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const at = seen.indexOf(hello);
      if (at < 0) {
        seen = seen.subarray(Math.max(0, seen.length - hello.length + 1));
        return;
      }
      socket.pause();
      const rest = seen.subarray(at + hello.length);
      settle();
      if (rest.length > 0) socket.unshift(rest);
    };
    const onClose = () => settle(new Error('the guest channel closed before the guest agent answered'));
    const onError = (error: Error) => settle(error);
    const onAbort = () => settle(new Error('the guest agent did not answer in time'));
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    socket.on('data', onData).on('close', onClose).on('error', onError);
    socket.write(hello);
  });
}
