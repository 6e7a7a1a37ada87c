// The routes of the host API with which the control plane renews the certificate of a joined host.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { AgentCertificate, AgentCertificateRequest, CERTIFICATE_PATHS } from '@sandbar/contract/fleet.ts';
import type { FastifyInstance } from 'fastify';
import type { FleetMember } from '../fleet/fleet-member.ts';

export function addCertificateRoutes(untyped: FastifyInstance, member: FleetMember): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.post(CERTIFICATE_PATHS.request, { schema: { response: { 200: AgentCertificateRequest } } }, async () => ({
    certificate_request: await member.requestCertificate(),
  }));

  server.put(CERTIFICATE_PATHS.certificate, { schema: { body: AgentCertificate } }, async (request, reply) => {
    member.install(request.body);
    return reply.status(204).send();
  });
}
