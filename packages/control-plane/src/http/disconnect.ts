// Long polls and streams end when their client disconnects.
import type { FastifyReply } from 'fastify';

/** Aborted when the connection closes before the response is complete. */
export function abortOnDisconnect(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}
