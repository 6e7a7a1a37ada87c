// Signing in through an OpenID Connect provider. The provider's configuration is fetched at the first sign-in and not
// at the start, so this service can start while the provider is down. If the fetch fails, the next sign-in tries again.
import { OidcCallbackQuery } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { AUTH_PATH, createAuth } from './better-auth.ts';
import type { Oidc } from './config.ts';
import { copyCookies, headersFor } from './exchange.ts';

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
  return createAuth(app, undefined, { plugins: [plugin], databaseHooks: { user: { create: { before } } } });
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

export function addOidcRoutes(server: FastifyInstance, app: App): void {
  const getAuth = oidcAuthOf(app);
  const { publicUrl } = app.config.auth;

  server.route({
    method: 'GET',
    url: `${AUTH_PATH}/oidc/sign-in`,
    schema: {
      operationId: 'signInWithOidc',
      summary: 'Sign in through the OpenID Connect provider',
      description: 'For browsers: sends them to the provider. Where none is configured it is a 404.',
      tags,
      response: { 302: Redirect },
    },
    config: { access: 'public', errors: ['not_found'] },
    handler: async (request, reply) => {
      const auth = await getAuth();
      if (!auth) return reply.redirect('/sign-in?error=provider_unavailable');
      const { headers, response } = await auth.api.signInSocial({
        body: { provider: PROVIDER, callbackURL: '/', disableRedirect: true },
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
        'Begins a session and sends the browser to /, or to /sign-in?error=… when the provider refused, or there is ' +
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
      const answer = await auth.handler(
        new Request(publicUrl + INNER_CALLBACK + search, { headers: headersFor(request) }),
      );
      copyCookies(answer.headers, reply);
      const target = new URL(answer.headers.get('location') ?? '/sign-in?error=internal_server_error', publicUrl);
      return reply.redirect(`${target.pathname}${target.search}`);
    },
  });
}
