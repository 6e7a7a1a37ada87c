// The sessions of clients that speak a protocol version before 2026-07-28. A session belongs to the API key that opened
// it: a request with another key gets a 404.
import { randomUUID } from 'node:crypto';
import { type McpServer, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { hashOf } from './key-checks.ts';
import { refusal } from './refusal.ts';
import { MESSAGE_BYTES } from './transport-bounds.ts';

/** The most sessions of one key. A further one ends the session that was used least recently. */
const PER_KEY = 64;
/** A session that was not used for so long ends when another one begins, ms. Clients often leave without ending it. */
const IDLE_MS = 24 * 3600 * 1000;

type Session = {
  keyHash: string;
  usedAt: number;
  server: McpServer;
  transport: WebStandardStreamableHTTPServerTransport;
};

export class Sessions {
  readonly #createServer: (apiKey: string) => McpServer;
  /** By session id; the one that was used least recently comes first. */
  readonly #sessions = new Map<string, Session>();

  constructor(createServer: (apiKey: string) => McpServer) {
    this.#createServer = createServer;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Answers a request of the session that it names, or opens one. */
  async fetch(request: Request, apiKey: string): Promise<Response> {
    const id = request.headers.get('mcp-session-id');
    if (id === null) return this.#open(request, apiKey);
    const session = this.#sessions.get(id);
    // The answer to an unknown session makes clients open a new one.
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

  /** The transport refuses a request that does not begin a session. */
  async #open(request: Request, apiKey: string): Promise<Response> {
    const server = this.#createServer(apiKey);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      maxRequestBodySize: MESSAGE_BYTES,
      onsessioninitialized: (id) =>
        this.#add(id, { keyHash: hashOf(apiKey), usedAt: performance.now(), server, transport }),
    });
    await server.connect(transport);
    // After `connect`, which sets the handler of the server.
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
