// The routes of sign-up, sign-in and sign-out. `rateLimit: 'password'` limits how fast passwords can be guessed.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { Account } from '@sandbar/contract/account.ts';
import { SignIn, SignUp } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { NoContent } from '@sandbar/contract/fields.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { exampleAccount, readAccount } from '../accounts/record.ts';
import type { App } from '../app.ts';
import { addDeviceLoginRoutes } from '../device-login/routes.ts';
import { AUTH_PATH, type GetAuth, lazyAuth } from './better-auth.ts';
import { addConfirmPasswordRoute } from './confirm-password.ts';
import { clearSessionCookie, readSessionCookie, sessionSecret } from './cookie.ts';
import { writeDeviceCookie } from './device-cookie.ts';
import { copyCookies, headersFor } from './exchange.ts';
import { createMailer } from './mail.ts';
import { addOidcRoutes } from './oidc.ts';
import { refuseForeignOrigin } from './origin.ts';
import { addPasswordRoutes } from './password-routes.ts';
import { signIn } from './sign-in.ts';
import { signUp } from './sign-up.ts';
import { endSession } from './store.ts';

const tags = ['Account'];

/** Adds everything under `/v1/auth`. */
export function addAuthRoutes(server: FastifyInstance, app: App): void {
  const mailer = createMailer(app);
  const getAuth = lazyAuth(app, mailer);
  addSessionRoutes(server, app, getAuth);
  addPasswordRoutes(server, app, getAuth, mailer !== undefined);
  addConfirmPasswordRoute(server, app);
  addOidcRoutes(server, app);
  addDeviceLoginRoutes(server, app);
}

function addSessionRoutes(untyped: FastifyInstance, app: App, getAuth: GetAuth): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const { publicUrl } = app.config.auth;
  const onRequest = async (request: FastifyRequest) => refuseForeignOrigin(request, publicUrl);

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/sign-up`,
    onRequest,
    schema: {
      operationId: 'signUp',
      summary: 'Make an account',
      description: 'Makes an account of tier free and signs in to it. Only where the operator opened sign-up.',
      tags,
      body: SignUp,
      response: { 201: Account },
    },
    config: {
      access: 'public',
      rateLimit: 'sign-in',
      errors: ['forbidden', 'conflict'],
      examples: {
        request: { email: 'ada@example.com', password: 'correct horse battery', name: 'Ada' },
        response: exampleAccount,
      },
    },
    handler: async (request, reply) => {
      if (app.config.auth.signUp === 'closed') {
        throw new ServiceError('forbidden', 'Sign-up is closed. Ask the operator of this service for an account.');
      }
      const { accountId, headers } = await signUp(await getAuth(), request.body, headersFor(request));
      copyCookies(headers, reply);
      return reply.code(201).send(await readAccount(app, accountId));
    },
  });

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/sign-in`,
    onRequest,
    schema: {
      operationId: 'signIn',
      summary: 'Sign in',
      description: 'Begins a dashboard session of a week, in the cookie sandbar_session.',
      tags,
      body: SignIn,
      response: { 200: Account },
    },
    config: {
      access: 'public',
      rateLimit: 'password',
      errors: ['unauthenticated', 'forbidden'],
      examples: {
        request: { email: 'ada@example.com', password: 'correct horse battery' },
        response: exampleAccount,
      },
    },
    handler: async (request, reply) => {
      const { email, password } = request.body;
      const signedIn = await signIn(app, await getAuth(), email, password, request.headers['user-agent'] ?? '');
      reply.header('set-cookie', signedIn.cookie);
      const isSecure = publicUrl.startsWith('https:');
      reply.header('set-cookie', writeDeviceCookie(email, app.config.secret, isSecure));
      return readAccount(app, signedIn.accountId);
    },
  });

  server.route({
    method: 'POST',
    url: `${AUTH_PATH}/sign-out`,
    schema: {
      operationId: 'signOut',
      summary: 'Sign out',
      description: 'Ends this session, on every replica at once.',
      tags,
      response: { 204: NoContent },
    },
    config: { access: 'session', rateLimit: 'none', allowedWhenSuspended: true },
    handler: async (request, reply) => {
      const token = readSessionCookie(request.headers.cookie, sessionSecret(app.config.secret));
      if (token !== undefined) await endSession(app.db, token);
      reply.header('set-cookie', clearSessionCookie(publicUrl.startsWith('https:')));
      return reply.code(204).send();
    },
  });
}
