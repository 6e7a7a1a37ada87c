// A browser adds the session cookie to every request, also to one that the page of another site makes. So a request
// that changes something by a session must come from one of our own pages, which the header Origin tells. SameSite=Lax
// of the cookie does most of this too, but lets in other sites of the same registrable domain.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyRequest } from 'fastify';

/** Throws `forbidden` unless the headers of the request say that one of our pages sent it. */
export function requireOwnOrigin(request: FastifyRequest, publicUrl: string): void {
  const { origin } = request.headers;
  if (origin === undefined && request.headers['sec-fetch-site'] === 'same-origin') return;
  if (origin !== undefined && isOwn(request, origin, publicUrl)) return;
  throw new ServiceError(
    'forbidden',
    origin === undefined
      ? `A change with a dashboard session needs the header Origin: ${publicUrl}. Browsers send it; other programs must add it.`
      : `The header Origin names another site than this service, which is ${publicUrl}.`,
  );
}

/** Throws `forbidden` when a page of another site sent the request. Programs, which send no `Origin`, may pass. */
export function refuseForeignOrigin(request: FastifyRequest, publicUrl: string): void {
  if (request.headers.origin !== undefined) requireOwnOrigin(request, publicUrl);
}

const isOwn = (request: FastifyRequest, origin: string, publicUrl: string): boolean =>
  origin === publicUrl || origin === `${request.protocol}://${request.headers.host}`;
