// The sessions of clients that speak a protocol version before 2026-07-28. A session belongs to the API key that opened
// it: a request with another key gets a 404.
import { randomUUID } from 'node:crypto';
import { type McpServer, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { hashOf } from './key-checks.ts';
import { refusal } from './refusal.ts';
import { MESSAGE_BYTES } from './transport-bounds.ts';

/** The most sessions of one key. When a key opens another, its least recently used session ends. */
const PER_KEY = 64;
/**
 * A session that was unused for this long is ended when another session begins, ms. Clients often leave without ending
 * their session.
 */
const IDLE_MS = 24 * 3600 * 1000;

type Session = {
  keyHash: string;
  usedAt: number;
  server: McpServer;
  transport: WebStandardStreamableHTTPServerTransport;
};

export class Sessions {
  readonly #createServer: (apiKey: string) => McpServer;
  /** The sessions by their id. The least recently used session comes first. */
  readonly #sessions = new Map<string, Session>();

  constructor(createServer: (apiKey: string) => McpServer) {
    this.#createServer = createServer;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Passes the request to the session that it names. If it names none, opens a session. */
  async fetch(request: Request, apiKey: string): Promise<Response> {
    const id = request.headers.get('mcp-session-id');
    if (id === null) return this.#open(request, apiKey);
    const session = this.#sessions.get(id);
    // After this answer, clients open a new session.
    if (session === undefined || session.keyHash !== hashOf(apiKey)) return refusal(404, 'Session not found');
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    session.usedAt = performance.now();
    return session.transport.handleRequest(request);
  }

  /** Ends all sessions. Their running calls are cancelled. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#sessions.values()].map(({ server }) => server.close()));
  }

  /** Opens a session. If the request does not begin a session, the transport refuses it. */
  async #open(request: Request, apiKey: string): Promise<Response> {
    const server = this.#createServer(apiKey);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      maxRequestBodySize: MESSAGE_BYTES,
      onsessioninitialized: (id) =>
        this.#add(id, { keyHash: hashOf(apiKey), usedAt: performance.now(), server, transport }),
    });
    await server.connect(transport);
    // This must come after `connect`, which sets the server's own `onclose`.
    const onclose = transport.onclose;
    transport.onclose = () => {
      if (transport.sessionId !== undefined) this.#sessions.delete(transport.sessionId);
      onclose?.();
    };
    const response = await transport.handleRequest(request);
    if (transport.sessionId === undefined) await server.close();
    return response;
  }

  async #add(id: string, session: Session): Promise<void> {
    const now = performance.now();
    const isIdle = (other: Session) => now - other.usedAt > IDLE_MS;
    const ofKey = [...this.#sessions.values()].filter(({ keyHash }) => keyHash === session.keyHash);
    const surplus = ofKey.slice(0, Math.max(0, ofKey.length - PER_KEY + 1));
    const ended = new Set([...[...this.#sessions.values()].filter(isIdle), ...surplus]);
    this.#sessions.set(id, session);
    await Promise.allSettled([...ended].map(({ server }) => server.close()));
  }
}
