// The route of the caller's own account.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { Account } from '@sandbar/contract/account.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { exampleAccount, readAccount } from './record.ts';

export function addAccountRoutes(untyped: FastifyInstance, app: App): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/account',
    schema: {
      operationId: 'getAccount',
      summary: 'Get the account',
      description: 'The account that the credential belongs to, with its balance.',
      tags: ['Account'],
      response: { 200: Account },
    },
    config: { access: 'read', examples: { response: exampleAccount } },
    handler: async (request) => readAccount(app, callerOf(request).accountId),
  });
}
