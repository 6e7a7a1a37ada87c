// A browser adds the session cookie to every request, also to one that the page of another site makes. So a request
// that changes something by a session must come from one of our own pages, which the header Origin tells. SameSite=Lax
// of the cookie does most of this too, but lets in other sites of the same registrable domain.
//
// The header Host says nothing about whose page it is: an attacker can give his own name our address, and then the Host
// and the Origin of his page agree.
import { isIPv6, type Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyRequest } from 'fastify';

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

/** The origins of pages that a browser got from the address and port of ours at which a connection arrived. */
function originsOfAddress({ localAddress = '', localPort }: Socket): string[] {
  const address = localAddress.replace(/^::ffff:(?=\d+\.)/, '');
  const isLoopback = address === '::1' || address.startsWith('127.');
  const hosts = [isIPv6(address) ? `[${address}]` : address, ...(isLoopback ? ['localhost'] : [])];
  // Browsers leave the default port of http out.
  return hosts.map((host) => (localPort === 80 ? `http://${host}` : `http://${host}:${localPort}`));
}
