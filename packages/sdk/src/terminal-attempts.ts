// Attempts to connect to a terminal: which request each attempt makes, and after which failures another one may
// succeed.
import type { TerminalSession, TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import { TERMINAL_PROTOCOL } from '@sandbar/contract/terminal-bounds.ts';
import { ApiError, ConnectionError } from './errors.ts';
import { isUnavailable, sleep } from './retry.ts';
import type { Transport } from './transport.ts';
import { openWebSocket, type WebSocket } from './web-socket.ts';

/** Requests a ticket. */
export type CreateSession = (body: TerminalSessionCreate, signal: AbortSignal) => Promise<TerminalSession>;

/** The wait before a further attempt to connect, ms. */
export const RECONNECT_MS = 250;

/**
 * Makes the first connection. When the connection breaks before it is open, the terminal may be open already, so this
 * tries to join that terminal before it opens another.
 */
export async function connectFirst(
  transport: Transport,
  createSession: CreateSession,
  request: TerminalSessionCreate,
  signal: AbortSignal,
): Promise<{ session: TerminalSession; socket: WebSocket }> {
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
      const mustOpen = isRetry && error instanceof ApiError && error.code === 'not_found';
      if (!mustOpen && !isPassing(error)) throw error;
      if (performance.now() + RECONNECT_MS > startedAt + transport.retryForMs) throw error;
      body = mustOpen ? request : { terminal_id: session.terminal_id, ...size };
      if (!mustOpen) await sleep(RECONNECT_MS, signal);
    }
  }
}

/**
 * Opens the connection of a ticket. Throws ApiError and ConnectionError. A refused ticket is a ConnectionError too: the
 * ticket is new, so an attempt whose answer was lost has spent it, or it expired on the way.
 */
export async function connect(
  { baseUrl, userAgent }: Transport,
  { ws_path, ticket }: TerminalSession,
  signal: AbortSignal,
): Promise<WebSocket> {
  const path = `${ws_path}?ticket=${encodeURIComponent(ticket)}`;
  try {
    return await openWebSocket({ baseUrl, userAgent, path, protocol: TERMINAL_PROTOCOL }, signal);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) throw new ConnectionError(baseUrl, error);
    throw error;
  }
}

/**
 * Whether another attempt may succeed. After 429 it may, because the service counts a broken connection until it
 * notices that the client is gone.
 */
export function isPassing(error: unknown): boolean {
  return isUnavailable(error) || (error instanceof ApiError && error.status === 429);
}
