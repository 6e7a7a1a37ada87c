// The requests that are under way. When the service stops, it waits for them and refuses new ones: the listener stays
// open meanwhile, because a connection that is closed without an answer leaves its client in doubt.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isShuttingDown } from '../operations/refusals.ts';
import { errorBody } from './errors.ts';
import { REQUEST_ID_HEADER, requestIdOf } from './request-id.ts';

export class Unfinished {
  readonly #draining: AbortSignal;
  #count = 0;
  #onIdle: (() => void)[] = [];

  /** `draining` is aborted when a shutdown was asked for. */
  constructor(draining: AbortSignal) {
    this.#draining = draining;
  }

  /** Whether connections should end with the request that they carry. */
  get areLast(): boolean {
    return this.#draining.aborted;
  }

  begin(): void {
    this.#count++;
  }

  /** The response of a request, or the WebSocket that the request became, is closed. */
  end(): void {
    this.#count--;
    if (this.#count > 0) return;
    for (const tell of this.#onIdle.splice(0)) tell();
  }

  /** Resolves when no request is under way. */
  async idle(): Promise<void> {
    if (this.#count > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }
}

/** Answers a request that came after the shutdown began with 503, and closes its connection. */
export function refuseWhileClosing(request: IncomingMessage, response: ServerResponse): void {
  const error = isShuttingDown();
  const requestId = requestIdOf(request);
  const body = JSON.stringify(errorBody(error, requestId));
  response.shouldKeepAlive = false;
  response.writeHead(error.status, {
    connection: 'close',
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    'retry-after': String(error.retryAfterSec),
    [REQUEST_ID_HEADER]: requestId,
  });
  response.end(request.method === 'HEAD' ? undefined : body);
  // Read what the client still sends. If the connection closed with unread bytes, the client would lose the answer.
  request.resume();
}
