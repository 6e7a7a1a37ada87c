// better-auth on our tables. It is not reachable by itself: the routes call it, so that every request and answer is one
// of the contract. An account is what better-auth calls a user, and a credential what it calls an account.
import type { BetterAuthOptions } from 'better-auth';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import { createAdapter } from './adapter.ts';
import { OIDC_COOKIE, SESSION_COOKIE, SESSION_SEC, sessionSecret } from './cookie.ts';
import type { Mailer } from './mail.ts';
import { hashPassword, PASSWORD_LENGTH, verifyPassword } from './password.ts';
import { dropLinks } from './store.ts';

export const AUTH_PATH = '/v1/auth';
/** Life of a link in a mail, seconds. */
const RESET_SEC = 3600;

const created = { createdAt: 'created_at', updatedAt: 'updated_at' };
const TABLES = {
  user: {
    modelName: 'accounts',
    fields: { ...created, emailVerified: 'email_verified' },
  },
  session: {
    modelName: 'sessions',
    fields: {
      ...created,
      userId: 'account_id',
      token: 'token_hash',
      expiresAt: 'expires_at',
      ipAddress: 'ip_address',
      userAgent: 'user_agent',
    },
    expiresIn: SESSION_SEC,
    disableSessionRefresh: true,
  },
  account: {
    modelName: 'credentials',
    fields: {
      ...created,
      userId: 'account_id',
      providerId: 'provider',
      accountId: 'provider_account_id',
      password: 'password_hash',
    },
    updateAccountOnSignIn: false,
    // Nothing of a sign-in that is under way goes to the database: its cookie is sealed.
    storeStateStrategy: 'cookie',
  },
  verification: {
    modelName: 'verifications',
    fields: { ...created, expiresAt: 'expires_at' },
    storeIdentifier: 'hashed',
  },
} satisfies BetterAuthOptions;

function optionsOf(app: App, mailer: Mailer | undefined) {
  const { publicUrl, signUp, signUpBilling } = app.config.auth;
  const field = { type: 'string', input: false, returned: false } as const;
  return {
    ...TABLES,
    user: {
      ...TABLES.user,
      additionalFields: {
        tier: { ...field, defaultValue: 'free' },
        billingMode: { ...field, fieldName: 'billing_mode', defaultValue: signUpBilling },
      },
    },
    appName: 'Sandbar',
    baseURL: publicUrl,
    basePath: AUTH_PATH,
    secret: sessionSecret(app.config.secret),
    emailAndPassword: {
      enabled: true,
      disableSignUp: signUp === 'closed',
      minPasswordLength: PASSWORD_LENGTH.min,
      maxPasswordLength: PASSWORD_LENGTH.max,
      password: { hash: hashPassword, verify: verifyPassword },
      resetPasswordTokenExpiresIn: RESET_SEC,
      revokeSessionsOnPasswordReset: true,
      onPasswordReset: ({ user }: { user: { id: string } }) => dropLinks(app.db, user.id),
      // Not waited for: how long it takes must not tell whether there is an account.
      ...(mailer && {
        sendResetPassword: async ({ user, token }: { user: { email: string }; token: string }) =>
          mailer.sendReset(user.email, token),
      }),
    },
    advanced: {
      useSecureCookies: false,
      cookiePrefix: 'sandbar',
      cookies: { session_token: { name: SESSION_COOKIE }, oauth_state: { name: OIDC_COOKIE } },
      defaultCookieAttributes: { secure: publicUrl.startsWith('https:') },
      database: { generateId: () => uuidv7(), validateSchema: false },
      ipAddress: { disableIpTracking: true },
    },
    onAPIError: { errorURL: `${publicUrl}/sign-in` },
    rateLimit: { enabled: false },
    telemetry: { enabled: false },
    // Its lines carry addresses and what a provider sent. What it throws is logged like any other error.
    logger: { disabled: true },
  } satisfies BetterAuthOptions;
}

/** An instance for this replica. It touches no database before its first use. */
export async function createAuth(app: App, mailer: Mailer | undefined, extra: Partial<BetterAuthOptions> = {}) {
  const { betterAuth } = await import('better-auth');
  const options = optionsOf(app, mailer);
  const adapter = await createAdapter(app.db, options);
  return betterAuth({ ...options, ...extra, database: () => adapter });
}

export type Auth = Awaited<ReturnType<typeof createAuth>>;
export type GetAuth = () => Promise<Auth>;

/** Makes the instance at its first use: the library takes 60 MB, which a service without a dashboard never needs. */
export function lazyAuth(app: App, mailer: Mailer | undefined): GetAuth {
  let auth: Promise<Auth> | undefined;
  return () => {
    auth ??= createAuth(app, mailer);
    return auth;
  };
}
