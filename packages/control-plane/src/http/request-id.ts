// The request id. A client may send its own, so that its log and ours can be matched; it is used when it is short and
// plain.
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

const SANE = /^[A-Za-z0-9._-]{1,128}$/;
export const REQUEST_ID_HEADER = 'x-request-id';

export function requestIdOf(request: Pick<IncomingMessage, 'headers'>): string {
  const given = request.headers[REQUEST_ID_HEADER];
  return typeof given === 'string' && SANE.test(given) ? given : randomUUID();
}
