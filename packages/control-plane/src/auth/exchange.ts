// Passes headers between our requests and better-auth. better-auth gets only two headers of a request (cookie and user
// agent), and the client gets only our own cookies from better-auth's response.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { OIDC_COOKIE, SESSION_COOKIE } from './cookie.ts';

const OUR_COOKIES = [SESSION_COOKIE, OIDC_COOKIE];

export function headersFor(request: FastifyRequest): Headers {
  const { cookie, 'user-agent': userAgent } = request.headers;
  return new Headers({
    ...(cookie === undefined ? {} : { cookie }),
    ...(userAgent === undefined ? {} : { 'user-agent': userAgent.slice(0, 255) }),
  });
}

export function copyCookies(from: Headers, reply: FastifyReply): void {
  const ours = from.getSetCookie().filter((cookie) => OUR_COOKIES.includes(cookie.slice(0, cookie.indexOf('='))));
  for (const cookie of ours) reply.header('set-cookie', cookie);
}
