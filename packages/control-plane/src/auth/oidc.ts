// Signing in through an OpenID Connect provider. The provider's configuration is fetched at the first sign-in and not
// at the start, so this service can start while the provider is down. If the fetch fails, the next sign-in tries again.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { OidcCallbackQuery, OidcSignInQuery } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { AUTH_PATH, createAuth } from './better-auth.ts';
import type { Oidc } from './config.ts';
import { copyCookies, headersFor } from './exchange.ts';
import { ASK_AGAIN, confirmedAt, finishSignIn, noteAuthTimes } from './oidc-confirmation.ts';

const PROVIDER = 'oidc';
const CALLBACK = `${AUTH_PATH}/oidc/callback`;
/** The callback path that better-auth expects. Requests to our own callback path are translated to this path. */
const INNER_CALLBACK = `${AUTH_PATH}/callback/${PROVIDER}`;
const tags = ['Account'];
const Redirect = Type.Unsafe<undefined>({ type: 'null', description: 'Sends the browser on.' });

async function createOidcAuth(app: App, { issuer, clientId, clientSecret }: Oidc) {
  const { publicUrl, signUp } = app.config.auth;
  const { genericOAuth } = await import('better-auth/plugins/generic-oauth');
  const plugin = genericOAuth({
    config: [
      {
        providerId: PROVIDER,
        discoveryUrl: `${issuer}/.well-known/openid-configuration`,
        clientId,
        clientSecret,
        scopes: ['openid', 'email', 'profile'],
        pkce: true,
        requireIdTokenVerification: true,
        redirectURI: publicUrl + CALLBACK,
        disableSignUp: signUp === 'closed',
        mapProfileToUser: (profile) => ({ emailVerified: profile.email_verified === true }),
      },
    ],
  });
  // Make no account for an e-mail address that the provider has not verified: it could belong to somebody else.
  const before = async (user: { emailVerified?: boolean }) => (user.emailVerified ? undefined : false);
  const confirm = async ({ userId }: { userId: string }) => ({
    data: { confirmedAt: await confirmedAt(app.db, userId) },
  });
  const databaseHooks = { user: { create: { before } }, session: { create: { before: confirm } } };
  const auth = await createAuth(app, undefined, { plugins: [plugin], databaseHooks });
  for (const provider of (await auth.$context).socialProviders) noteAuthTimes(provider);
  return auth;
}

/**
 * Returns a function that gives the better-auth instance for the provider, or undefined while the provider does not
 * answer. The function throws `not_found` when no provider is configured.
 */
function oidcAuthOf(app: App) {
  let ready: ReturnType<typeof createOidcAuth> | undefined;
  return async () => {
    const { oidc } = app.config.auth;
    if (!oidc) throw new ServiceError('not_found', 'This service has no OpenID Connect provider.');
    ready ??= createOidcAuth(app, oidc);
    const auth = await ready;
    const { socialProviders } = await auth.$context;
    if (socialProviders.some(({ id }) => id === PROVIDER)) return auth;
    ready = undefined;
    app.log.warn({ issuer: oidc.issuer }, 'the OpenID provider does not answer');
    return undefined;
  };
}

export function addOidcRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const getAuth = oidcAuthOf(app);
  const { publicUrl } = app.config.auth;

  server.route({
    method: 'GET',
    url: `${AUTH_PATH}/oidc/sign-in`,
    schema: {
      operationId: 'signInWithOidc',
      summary: 'Sign in through the OpenID Connect provider',
      description:
        'For browsers: sends them to the provider. Where none is configured it is a 404. With confirm=true the provider ' +
        'asks the person again, and the browser comes back to /accounts. For an account without a password, the session ' +
        "then may use the operator's pages for 15 minutes.",
      tags,
      querystring: OidcSignInQuery,
      response: { 302: Redirect },
    },
    config: { access: 'public', errors: ['not_found'] },
    handler: async (request, reply) => {
      const auth = await getAuth();
      if (!auth) return reply.redirect('/sign-in?error=provider_unavailable');
      const { headers, response } = await auth.api.signInSocial({
        body: {
          provider: PROVIDER,
          callbackURL: request.query.confirm ? '/accounts' : '/',
          disableRedirect: true,
          ...(request.query.confirm ? { additionalParams: ASK_AGAIN } : {}),
        },
        headers: headersFor(request),
        returnHeaders: true,
      });
      copyCookies(headers, reply);
      return reply.redirect(response.url ?? '/sign-in?error=provider_unavailable');
    },
  });

  server.route({
    method: 'GET',
    url: CALLBACK,
    schema: {
      operationId: 'finishOidcSignIn',
      summary: 'Come back from the OpenID Connect provider',
      description:
        'Begins a session and sends the browser on, or to /sign-in?error=… when the provider refused, or there is ' +
        'no account with this verified address and sign-up is closed.',
      tags,
      querystring: OidcCallbackQuery,
      response: { 302: Redirect },
    },
    config: { access: 'public', errors: ['not_found'] },
    handler: async (request, reply) => {
      const auth = await getAuth();
      if (!auth) return reply.redirect('/sign-in?error=provider_unavailable');
      const { search } = new URL(request.url, publicUrl);
      const inner = new Request(publicUrl + INNER_CALLBACK + search, { headers: headersFor(request) });
      const answer = await finishSignIn(() => auth.handler(inner));
      copyCookies(answer.headers, reply);
      const target = new URL(answer.headers.get('location') ?? '/sign-in?error=internal_server_error', publicUrl);
      return reply.redirect(`${target.pathname}${target.search}`);
    },
  });
}
