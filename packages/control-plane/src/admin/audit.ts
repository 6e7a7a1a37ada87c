// The operator's routes for the audit (`sandbar doctor`).
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { audit, fixAudit } from '../audit/audit.ts';

const Nothing = Type.Object({}, { additionalProperties: false });

export function addAuditRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.get('/admin/audit', () => audit(app));
  server.post('/admin/audit/fix', { schema: { body: Nothing } }, () => fixAudit(app));
}
