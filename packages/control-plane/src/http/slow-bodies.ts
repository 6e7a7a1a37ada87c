// Ends requests whose body arrives too slowly. Node's own time-out covers every request alike, but the upload of a large
// file may take hours, as long as its bytes keep coming.
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { malformedRequestResponse } from './errors.ts';

/** Adds the check. A body must be complete after `bodyMs` milliseconds. An upload may pause for at most this long. */
export function installBodyTimeouts(server: FastifyInstance, bodyMs: number): void {
  server.addHook('onRequest', async (request, reply) => {
    const { raw } = request;
    if (!hasBody(raw)) return;
    const isUpload = request.routeOptions.config.binaryRequest !== undefined;
    const timer = isUpload ? watchPauses(raw, bodyMs) : setTimeout(() => refuse(raw), bodyMs);
    reply.raw.once('close', () => clearTimeout(timer));
  });
}

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

function watchPauses(request: IncomingMessage, pauseMs: number): NodeJS.Timeout {
  let seen = -1;
  return setInterval(() => {
    const { bytesRead } = request.socket;
    // While the machine takes no bytes, or nothing reads the body yet, the client is not to blame.
    const isWaiting = request.readableFlowing === true && !request.complete;
    if (isWaiting && bytesRead === seen) request.destroy();
    seen = isWaiting ? bytesRead : -1;
  }, pauseMs);
}

function refuse(request: IncomingMessage): void {
  if (!request.complete) request.socket.end(malformedRequestResponse('ERR_HTTP_REQUEST_TIMEOUT'));
}
