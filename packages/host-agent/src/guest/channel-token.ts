// The greeting and the token that begin a session with a machine's guest agent (channel.ts). They are in a file of their
// own because the host agent, which runs as root, must not load code that reads what guests send.
import { randomBytes } from 'node:crypto';

/** Begins every session; the same for all machines (guest-agent/internal/channel/scanner.go). */
export const GREETING = Buffer.from('sandbar-host-opens-a-new-session');
const TOKEN_BYTES = 32;

/** Generates the channel token of a new machine: 64 hex digits. */
export function newChannelToken(): string {
  return randomBytes(TOKEN_BYTES).toString('hex');
}
