// The routes of API keys. They need a dashboard session: a key cannot manage keys.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  type ApiKey,
  ApiKeyCreate,
  ApiKeyList,
  ApiKeyListQuery,
  ApiKeyParams,
  NewApiKey,
} from '@sandbar/contract/api-key.ts';
import { NoContent } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { createKey, listKeys, revokeKey } from './manage.ts';

const tags = ['Account'];

const sessionHint = 'Or ask the operator of this service, who makes keys with `sandbar admin account key`.';

const exampleKey: ApiKey = {
  id: '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20',
  name: 'ci',
  scope: 'full',
  prefix: 'sbr_1kZ8vQ2x',
  created_at: '2026-01-02T03:04:05.006Z',
  last_used_at: null,
  expires_at: null,
};

export function addApiKeyRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/api-keys',
    schema: {
      operationId: 'listApiKeys',
      summary: 'List API keys',
      description: 'Newest first, all of them unless page_size is given. The keys themselves are not shown again.',
      tags,
      querystring: ApiKeyListQuery,
      response: { 200: ApiKeyList },
    },
    config: { access: 'session', sessionHint, examples: { response: { api_keys: [exampleKey] } } },
    handler: async (request) => {
      const { rows, cursor } = await listKeys(app, callerOf(request).accountId, request.query);
      return { api_keys: rows, ...cursor };
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/api-keys',
    schema: {
      operationId: 'createApiKey',
      summary: 'Make an API key',
      description:
        'The key is in this answer and never again. An account has at most 100. Needs a dashboard session: sign in first; an ' +
        'API key makes no other.',
      tags,
      body: ApiKeyCreate,
      response: { 201: NewApiKey },
    },
    config: {
      access: 'session',
      sessionHint,
      errors: ['conflict'],
      examples: {
        request: { name: 'ci', scope: 'full' },
        response: { ...exampleKey, key: 'sbr_1kZ8vQ2xT5mYb7NwR3cJ9dH6gL4pF0sAeUiOqXnVtKz' },
      },
    },
    handler: async (request, reply) =>
      reply.code(201).send(await createKey(app, callerOf(request).accountId, request.body)),
  });

  server.route({
    method: 'DELETE',
    url: '/v1/api-keys/:id',
    schema: {
      operationId: 'revokeApiKey',
      summary: 'Revoke an API key',
      description: 'The key is refused from the next request on, on every replica.',
      tags,
      params: ApiKeyParams,
      response: { 204: NoContent },
    },
    config: { access: 'session', sessionHint },
    handler: async (request, reply) => {
      await revokeKey(app, callerOf(request).accountId, request.params.id);
      return reply.code(204).send();
    },
  });
}
