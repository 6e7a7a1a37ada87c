// The routes of passwords: changing a password, and setting a new password with a link from a mail.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { PasswordChange, PasswordReset, PasswordResetRequest } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { NoContent } from '@sandbar/contract/fields.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { AUTH_PATH, type GetAuth } from './better-auth.ts';
import { withRefusals } from './errors.ts';
import { copyCookies, headersFor } from './exchange.ts';
import { refuseForeignOrigin } from './origin.ts';
import { dropLinks } from './store.ts';

const tags = ['Account'];
const new_password = 'another horse battery';

export function addPasswordRoutes(untyped: FastifyInstance, app: App, getAuth: GetAuth, hasMail: boolean): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const onRequest = async (request: FastifyRequest) => refuseForeignOrigin(request, app.config.auth.publicUrl);

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/change-password`,
    schema: {
      operationId: 'changePassword',
      summary: 'Change the password',
      description: 'Ends all other sessions of the account; this one goes on with a new cookie.',
      tags,
      body: PasswordChange,
      response: { 204: NoContent },
    },
    config: {
      access: 'session',
      rateLimit: 'sign-in',
      errors: ['conflict'],
      examples: { request: { current_password: 'correct horse battery', new_password } },
    },
    handler: async (request, reply) => {
      const { current_password: currentPassword, new_password: newPassword } = request.body;
      const body = { currentPassword, newPassword, revokeOtherSessions: true };
      const { headers } = await withRefusals(async () =>
        (await getAuth()).api.changePassword({ body, headers: headersFor(request), returnHeaders: true }),
      );
      await dropLinks(app.db, callerOf(request).accountId);
      copyCookies(headers, reply);
      return reply.code(204).send();
    },
  });

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/request-password-reset`,
    onRequest,
    schema: {
      operationId: 'requestPasswordReset',
      summary: 'Ask for a link to set a new password',
      description: 'Answers the same whether or not there is an account. The link works once, for an hour.',
      tags,
      body: PasswordResetRequest,
      response: { 202: NoContent },
    },
    config: {
      access: 'public',
      rateLimit: 'sign-in',
      errors: ['forbidden'],
      examples: { request: { email: 'ada@example.com' } },
    },
    handler: async (request, reply) => {
      if (!hasMail) {
        throw new ServiceError(
          'forbidden',
          'This service sends no mail. Ask its operator for a new password (sandbar admin account password).',
        );
      }
      await withRefusals(async () =>
        (await getAuth()).api.requestPasswordReset({ body: request.body, headers: headersFor(request) }),
      );
      return reply.code(202).send();
    },
  });

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/reset-password`,
    onRequest,
    schema: {
      operationId: 'resetPassword',
      summary: 'Set a new password with a link',
      description: 'Ends all sessions of the account, and every other link that was sent for it.',
      tags,
      body: PasswordReset,
      response: { 204: NoContent },
    },
    config: {
      access: 'public',
      rateLimit: 'sign-in',
      errors: ['forbidden'],
      examples: { request: { token: 'Jq3n0xWc7PzL4sVb8RkYtG1d', new_password } },
    },
    handler: async (request, reply) => {
      const { token, new_password: newPassword } = request.body;
      await withRefusals(async () =>
        (await getAuth()).api.resetPassword({ body: { token, newPassword }, headers: headersFor(request) }),
      );
      return reply.code(204).send();
    },
  });
}
