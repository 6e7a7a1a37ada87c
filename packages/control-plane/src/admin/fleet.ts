// The operator's routes for join tokens and for the authority of the fleet.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HostTokenCreate } from '@sandbar/contract/admin.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { rotateAuthority } from '../fleet/authorities.ts';
import { createHostToken, listHostTokens, revokeHostToken } from '../fleet/tokens.ts';

const params = Type.Object({ id: Uuid() });

export function addFleetAdminRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.get('/admin/host-tokens', async () => ({ tokens: await listHostTokens(app) }));
  server.post('/admin/host-tokens', { schema: { body: HostTokenCreate } }, ({ body }) =>
    createHostToken(app, body.expires_in_sec),
  );
  server.post('/admin/host-tokens/:id/revoke', { schema: { params } }, async ({ params: { id } }) => {
    await revokeHostToken(app, id);
    return { id };
  });
  server.post('/admin/fleet/rotate-authority', async () => {
    await rotateAuthority(app.db, app.config.secret);
    return {};
  });
}
