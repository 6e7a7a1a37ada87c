// What trusted reverse proxies say about the request of their client. Headers of anybody else are not believed.
import type { IncomingMessage } from 'node:http';
import { isEncrypted } from './over-tls.ts';

type IsProxy = (ip: string) => boolean;

/** Whether the client speaks TLS, with the service or with a trusted proxy (`X-Forwarded-Proto`). */
export function isOverTls({ headers, socket }: IncomingMessage, isProxy: IsProxy): boolean {
  const told = isProxy(socket.remoteAddress ?? '') ? lastOf(headers['x-forwarded-proto']) : undefined;
  return told === undefined ? isEncrypted(socket) : told.toLowerCase() === 'https';
}

/** The host name that a trusted proxy says its client used (`X-Forwarded-Host`). */
export function forwardedHost({ headers, socket }: IncomingMessage, isProxy: IsProxy): string | undefined {
  const told = headers['x-forwarded-host'];
  return told !== undefined && isProxy(socket.remoteAddress ?? '') ? lastOf(told) : undefined;
}

/** The nearest proxy writes the last item. Those before it may come from the client. */
function lastOf(header: string | string[] | undefined): string | undefined {
  return [header ?? []].flat().join(',').split(',').at(-1)?.trim() || undefined;
}
