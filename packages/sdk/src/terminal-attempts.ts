// Attempts to connect to a terminal: which request each attempt makes, and after which failures another one may
// succeed.
import type { TerminalSession, TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import { TERMINAL_PROTOCOL } from '@sandbar/contract/terminal-bounds.ts';
import { platform } from '#platform';
import { ConnectionError } from './errors.ts';
import type { Socket } from './platform/socket.ts';
import { isUnavailable, sleep } from './retry.ts';
import { SandbarError } from './service-errors.ts';
import type { Transport } from './transport.ts';

/** Requests a ticket. */
export type CreateSession = (body: TerminalSessionCreate, signal: AbortSignal) => Promise<TerminalSession>;

/** The wait before a further attempt to connect, ms. */
export const RECONNECT_MS = 250;
/** How long a connection may take to open, ms. */
const CONNECT_MS = 30_000;

/**
 * Makes the first connection to a terminal. When an attempt fails, the service may have opened the terminal already, so
 * the next attempt joins that terminal. If the terminal does not exist, a further attempt opens it.
 */
export async function connectFirst(
  transport: Transport,
  createSession: CreateSession,
  request: TerminalSessionCreate,
  signal: AbortSignal,
): Promise<{ session: TerminalSession; socket: Socket }> {
  const { cols, rows } = request;
  const size = { ...(cols === undefined ? {} : { cols }), ...(rows === undefined ? {} : { rows }) };
  const startedAt = performance.now();
  let body = request;
  for (;;) {
    const session = await createSession(body, signal);
    try {
      return { session, socket: await connect(transport, session, signal) };
    } catch (error) {
      const isRetry = body !== request;
      const mustOpen = isRetry && error instanceof SandbarError && error.code === 'not_found';
      if (!mustOpen && !isPassing(error)) throw error;
      if (performance.now() + RECONNECT_MS > startedAt + transport.retryForMs) throw error;
      body = mustOpen ? request : { terminal_id: session.terminal_id, ...size };
      if (!mustOpen) await sleep(RECONNECT_MS, signal);
    }
  }
}

/**
 * Opens a connection with a ticket. Throws SandbarError and ConnectionError. When the service refuses the ticket, this
 * throws ConnectionError too, so that the caller tries again: the ticket was new, so it expired on the way, or it was
 * used by an attempt whose answer was lost.
 */
export async function connect(
  transport: Transport,
  { ws_path, ticket }: TerminalSession,
  signal: AbortSignal,
): Promise<Socket> {
  const path = `${ws_path}?ticket=${encodeURIComponent(ticket)}`;
  const { baseUrl, userAgent } = transport;
  const limit = transport.limit({ signal, timeoutMs: CONNECT_MS });
  try {
    return await platform.openSocket({ baseUrl, userAgent, path, protocol: TERMINAL_PROTOCOL }, limit.signal);
  } catch (error) {
    if (error instanceof SandbarError && error.status === 401) throw new ConnectionError(baseUrl, error);
    throw error;
  } finally {
    limit.isDone();
  }
}

/**
 * Whether another attempt may succeed. After 429 it may, because the service counts a broken connection until it
 * notices that the client is gone.
 */
export function isPassing(error: unknown): boolean {
  return isUnavailable(error) || (error instanceof SandbarError && error.status === 429);
}
