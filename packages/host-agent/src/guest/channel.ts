// Opens a session with the guest agent on the machine's virtio-serial port. The port is a byte stream without
// connections: bytes of an earlier session may still arrive, and a restored guest does not know that its earlier
// session has ended. So the host starts each session with a fixed greeting, the machine's token and a random epoch. The
// guest ends its old session and echoes token and epoch. The host discards everything that it receives before the echo.
//
// The guest takes its token from the first session. A later session may replace the token only while the guest has no
// identity yet, or while its processes are held for a memory snapshot. So every clone gets its own token, and no token
// is on a command line.
//
// The echo also says which protocol follows. An agent that speaks frames (frame-transport.ts) echoes the epoch with all
// bits inverted. An agent that echoes the epoch as it is speaks HTTP/2 (http2-transport.ts).
//
// Old guest agents: a machine keeps the guest agent that it was created with. Agents of version 0.1.0 read their token
// from the kernel command line, where the host now puts the greeting. So such an agent takes the greeting for its token
// and the eight bytes after it for the epoch, and echoes both. The host then sends it a second preamble, with the
// greeting as token and a new epoch. All machines with such an agent share this token until they are created again.
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { GREETING } from './channel-token.ts';

const EPOCH_BYTES = 8;
/**
 * The most bytes of an earlier session that may arrive before the echo. An honest guest sends at most the HTTP/2 window
 * of that session (8 MiB), or 256 KiB of output in frames for each of 16 jobs, and the content of the port's buffers.
 * So this limit is generous.
 */
const MAX_STALE_BYTES = 32 * 1024 * 1024;

/** What a guest agent speaks after the echo. */
export type GuestProtocol = 'frames' | 'http2';

/**
 * Sends the greeting, `token` (64 hex digits) and an epoch on a connected socket. Resolves when the guest has echoed
 * them, with the protocol that it speaks. Bytes after the echo are put back to be read, and the socket is paused. When
 * the socket closes, `signal` aborts, or too many other bytes arrive first, destroys the socket and rejects.
 */
export function openSession(socket: Socket, token: string, signal: AbortSignal): Promise<GuestProtocol> {
  let echo = Buffer.concat([Buffer.from(token, 'hex'), randomBytes(EPOCH_BYTES)]);
  const echoOfFrames = Buffer.from(echo.map((byte, at) => (at < echo.length - EPOCH_BYTES ? byte : byte ^ 0xff)));
  const echoOfOldAgent = Buffer.concat([GREETING, echo.subarray(0, EPOCH_BYTES)]);
  return new Promise((resolve, reject) => {
    let seen: Buffer = Buffer.alloc(0);
    let stale = 0;
    const settle = (outcome: GuestProtocol | Error) => {
      socket.off('data', onData).off('close', onClose).off('error', onError);
      signal.removeEventListener('abort', onAbort);
      if (outcome instanceof Error) {
        socket.destroy();
        reject(outcome);
      } else resolve(outcome);
    };
    const onData = (chunk: Buffer) => {
      stale += chunk.length;
      if (stale > MAX_STALE_BYTES) return settle(new Error('the guest agent sends, but does not answer'));
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const oldAt = seen.indexOf(echoOfOldAgent);
      if (oldAt >= 0) {
        seen = seen.subarray(oldAt + echoOfOldAgent.length);
        echo = Buffer.concat([GREETING, randomBytes(EPOCH_BYTES)]);
        socket.write(echo);
      }
      const framesAt = seen.indexOf(echoOfFrames);
      const at = framesAt >= 0 ? framesAt : seen.indexOf(echo);
      if (at < 0) {
        seen = seen.subarray(Math.max(0, seen.length - echo.length + 1));
        return;
      }
      socket.pause();
      const rest = seen.subarray(at + echo.length);
      settle(framesAt >= 0 ? 'frames' : 'http2');
      if (rest.length > 0) socket.unshift(rest);
    };
    const onClose = () => settle(new Error('the guest channel closed before the guest agent answered'));
    const onError = (error: Error) => settle(error);
    const onAbort = () => settle(new Error('the guest agent did not answer in time'));
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    socket.on('data', onData).on('close', onClose).on('error', onError);
    socket.write(Buffer.concat([GREETING, echo]));
  });
}
