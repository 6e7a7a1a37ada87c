// The route at which hosts join. It is not part of the public API: `sandbar host join` calls it. The join token is its
// only credential.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { AgentCertificate, HostJoin, JOIN_PATH } from '@sandbar/contract/fleet.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { joinHost } from './join.ts';

export function addFleetRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.route({
    method: 'POST',
    url: JOIN_PATH,
    schema: { hide: true, body: HostJoin, response: { 200: AgentCertificate } },
    config: { access: 'public', rateLimit: 'sign-in' },
    handler: async (request, reply) =>
      reply.header('cache-control', 'no-store').send(await joinHost(app, request.body)),
  });
}
