// The route that checks the password of a session again. The operator's requests need a check of the last 15 minutes.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { PasswordConfirmation } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { NoContent } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { AUTH_PATH } from './better-auth.ts';
import { findPasswordHash, verifyPassword } from './password.ts';
import { confirmSession } from './store.ts';

export function addConfirmPasswordRoute(untyped: FastifyInstance, app: App): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'POST',
    url: `${AUTH_PATH}/confirm-password`,
    schema: {
      operationId: 'confirmPassword',
      summary: 'Confirm the password',
      description:
        'Checks the password of this session again. After that, or after a sign-in, the session of an operator may use ' +
        "the operator's pages of the dashboard for 15 minutes.",
      tags: ['Account'],
      body: PasswordConfirmation,
      response: { 204: NoContent },
    },
    config: {
      access: 'session',
      rateLimit: 'sign-in',
      errors: ['conflict'],
      examples: { request: { password: 'correct horse battery' } },
    },
    handler: async (request, reply) => {
      const { accountId, credentialId } = callerOf(request);
      const hash = await findPasswordHash(app.db, accountId);
      if (hash === undefined) {
        throw new ServiceError(
          'conflict',
          'The account has no password. Sign in again with GET /v1/auth/oidc/sign-in?confirm=true instead.',
        );
      }
      if (!(await verifyPassword({ hash, password: request.body.password }))) {
        throw new ServiceError('validation_error', 'password is not the password of this account.');
      }
      await confirmSession(app.db, credentialId);
      return reply.code(204).send();
    },
  });
}
