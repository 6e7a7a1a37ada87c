// The routes for join tokens on the operator's pages of the dashboard.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HostTokenCreate, HostTokenList, NewHostToken } from '@sandbar/contract/admin.ts';
import { NoContent, Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { createHostToken, listHostTokens, revokeHostToken } from '../fleet/tokens.ts';
import { exampleHostToken } from './examples.ts';
import { OPERATOR } from './operator-access.ts';

const tags = ['Operator'];
const { id, token, url, created_at, expires_at } = exampleHostToken;

export function addOperatorFleetRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/admin/v1/host-tokens',
    schema: {
      operationId: 'listHostTokens',
      summary: 'List the join tokens',
      description: 'The tokens with which a host can still join, newest first, without their text.',
      tags,
      response: { 200: HostTokenList },
    },
    config: { ...OPERATOR, examples: { response: { tokens: [{ id, created_at, expires_at }] } } },
    handler: async () => ({ tokens: await listHostTokens(app) }),
  });

  server.route({
    method: 'POST',
    url: '/admin/v1/host-tokens',
    schema: {
      operationId: 'createHostToken',
      summary: 'Make a join token',
      description: 'One host can join with it: sandbar host join --url URL --token TOKEN. It is in this answer only.',
      tags,
      body: HostTokenCreate,
      response: { 201: NewHostToken },
    },
    config: {
      ...OPERATOR,
      examples: { request: { expires_in_sec: 3600 }, response: { id, token, url, expires_at } },
    },
    handler: async ({ body }, reply) =>
      reply
        .code(201)
        .header('cache-control', 'no-store')
        .send(await createHostToken(app, body.expires_in_sec)),
  });

  server.route({
    method: 'DELETE',
    url: '/admin/v1/host-tokens/:id',
    schema: {
      operationId: 'revokeHostToken',
      summary: 'Revoke a join token',
      description: 'No host can join with it any more. 404 for a token that was used.',
      tags,
      params: Type.Object({ id: Uuid('The token.') }),
      response: { 204: NoContent },
    },
    config: OPERATOR,
    handler: async ({ params }, reply) => {
      await revokeHostToken(app, params.id);
      return reply.code(204).send();
    },
  });
}
