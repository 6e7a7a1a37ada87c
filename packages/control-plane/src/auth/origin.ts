// Protects against cross-site request forgery. A browser sends the session cookie with every request to us, even when a
// page of another site makes the request. So a request that changes something with a session must come from one of our
// own pages, which the header Origin shows. The cookie's SameSite=Lax blocks most other sites, but not sites of the
// same registrable domain.
//
// The header Host does not help: an attacker can point a name of his own at our address, and then the Host and the
// Origin of his page's requests are the same.
import { isIPv6, type Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyRequest } from 'fastify';
import { isEncrypted } from '../http/over-tls.ts';

/** Throws `forbidden` unless the headers of the request say that one of our pages sent it. */
export function requireOwnOrigin(request: FastifyRequest, publicUrl: string): void {
  const { origin } = request.headers;
  if (origin === publicUrl) return;
  if (origin !== undefined && originsOfAddress(request.socket).includes(origin)) return;
  throw new ServiceError(
    'forbidden',
    origin === undefined
      ? `A change with a dashboard session needs the header Origin: ${publicUrl}. Browsers send it; other programs must add it.`
      : `The header Origin names another site than this service, which is ${publicUrl}. Its operator sets SANDBAR_PUBLIC_URL.`,
  );
}

/** Throws `forbidden` when a page of another site sent the request. Programs, which send no `Origin`, may pass. */
export function refuseForeignOrigin(request: FastifyRequest, publicUrl: string): void {
  if (request.headers.origin !== undefined) requireOwnOrigin(request, publicUrl);
}

/** The origins of pages that are loaded from the local address and port of this connection. */
function originsOfAddress(socket: Socket): string[] {
  const { localAddress = '', localPort } = socket;
  const [scheme, defaultPort] = isEncrypted(socket) ? ['https', 443] : ['http', 80];
  const address = localAddress.replace(/^::ffff:(?=\d+\.)/, '');
  const isLoopback = address === '::1' || address.startsWith('127.');
  const hosts = [isIPv6(address) ? `[${address}]` : address, ...(isLoopback ? ['localhost'] : [])];
  // Browsers leave the default port of a scheme out.
  return hosts.map((host) => `${scheme}://${host}${localPort === defaultPort ? '' : `:${localPort}`}`);
}
