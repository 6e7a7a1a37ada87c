// The greeting and the token that begin a session with a machine's guest agent (channel.ts). This is a separate file,
// because the host agent, which runs as root, must not load code that parses what guests send.
import { randomBytes } from 'node:crypto';

/** The first bytes of every session; the same for all machines (guest-agent/internal/channel/scanner.go). */
export const GREETING = Buffer.from('sandbar-host-opens-a-new-session');
const TOKEN_BYTES = 32;

/** Generates the channel token of a new machine: 64 hex digits. */
export function newChannelToken(): string {
  return randomBytes(TOKEN_BYTES).toString('hex');
}
