// Between our requests and answers and better-auth's: it is given two headers of the request, and of its answer only our
// cookies go on.
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
