// The request id. A client may send its own id, so that its log and ours can be matched. The service uses the client's
// id only when it is short and has no special characters.
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

const SANE = /^[A-Za-z0-9._-]{1,128}$/;
export const REQUEST_ID_HEADER = 'x-request-id';

export function requestIdOf(request: Pick<IncomingMessage, 'headers'>): string {
  const given = request.headers[REQUEST_ID_HEADER];
  return typeof given === 'string' && SANE.test(given) ? given : randomUUID();
}
