// What changes in answers to requests over TLS, whether the service or a trusted proxy in front of it speaks TLS.
import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import type { FastifyInstance } from 'fastify';

/** Marks all cookies as Secure, and tells browsers to use only HTTPS for `hstsSec` seconds (0: does not tell them). */
export function markAnswersOverTls(server: FastifyInstance, hstsSec: number): void {
  server.addHook('onSend', async (request, reply) => {
    if (request.protocol !== 'https') return;
    if (hstsSec > 0) reply.header('strict-transport-security', `max-age=${hstsSec}`);
    const cookies = [reply.getHeader('set-cookie') ?? []].flat().map(String);
    if (cookies.length === 0) return;
    reply.removeHeader('set-cookie');
    for (const cookie of cookies) reply.header('set-cookie', withSecure(cookie));
  });
}

const withSecure = (cookie: string): string => (/; *secure *(;|$)/i.test(cookie) ? cookie : `${cookie}; Secure`);

/** Whether a connection is one over TLS. */
export const isEncrypted = (socket: IncomingMessage['socket']): boolean =>
  (socket as Partial<TLSSocket>).encrypted === true;
