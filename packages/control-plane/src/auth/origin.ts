// A browser sends the session cookie by itself, also when another site's page asks for it. So what a session changes must
// come from a page of ours. SameSite=Lax says the same; other sites of the same registrable domain are beyond it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyRequest } from 'fastify';

/** Throws `forbidden` unless the request says that a page of ours sent it. */
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

/** Throws `forbidden` when another site's page sent the request; programs send no `Origin`. */
export function refuseForeignOrigin(request: FastifyRequest, publicUrl: string): void {
  if (request.headers.origin !== undefined) requireOwnOrigin(request, publicUrl);
}

const isOwn = (request: FastifyRequest, origin: string, publicUrl: string): boolean =>
  origin === publicUrl || origin === `${request.protocol}://${request.headers.host}`;
