// Long polls and streams end when their client disconnects or the service shuts down.
import type { FastifyReply } from 'fastify';

/** Aborted when the connection closes before the response is complete. */
export function abortOnDisconnect(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

/**
 * The long requests of this replica. Each has one controller for all reasons to end, because `AbortSignal.any` takes
 * several times as much memory, and thousands of requests may wait.
 */
export class LongRequests {
  readonly #open = new Set<AbortController>();

  /** `closing` ends all requests. */
  constructor(closing: AbortSignal) {
    closing.addEventListener('abort', () => {
      for (const controller of this.#open) controller.abort(closing.reason);
    });
  }

  /**
   * Returns a controller that is aborted when the connection closes before the response is complete, or when the
   * service shuts down.
   */
  begin({ raw }: FastifyReply): AbortController {
    const controller = new AbortController();
    // If the client has disconnected already, `close` is never emitted.
    if (raw.closed) controller.abort();
    else this.#open.add(controller);
    raw.once('close', () => {
      this.#open.delete(controller);
      if (!raw.writableFinished) controller.abort();
    });
    return controller;
  }
}
