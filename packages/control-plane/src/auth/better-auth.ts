// Sets up better-auth on our tables. Clients cannot reach better-auth directly: our routes call its functions, so the
// contract defines every request and answer. What better-auth calls a "user" is our account, and its "account" is our
// credential.
import type { BetterAuthOptions } from 'better-auth';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import { createAdapter } from './adapter.ts';
import { OIDC_COOKIE, SESSION_COOKIE, SESSION_SEC, sessionSecret } from './cookie.ts';
import type { Mailer } from './mail.ts';
import { hashPassword, PASSWORD_LENGTH, verifyPassword } from './password.ts';
import { dropLinks } from './store.ts';

export const AUTH_PATH = '/v1/auth';
/** How long a link in a mail can be used, seconds. */
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
    // Only the sign-in through a provider sets it. Otherwise the database sets the present time.
    additionalFields: {
      confirmedAt: { type: 'date', fieldName: 'confirmed_at', required: false, input: false, returned: false },
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
    // A sign-in through a provider that is not finished is kept in an encrypted cookie, not in the database.
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
      // The request does not wait for the mail, so its duration does not reveal whether the account exists.
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
    // Disabled, because better-auth's log would contain e-mail addresses and responses of a provider. The errors that
    // it throws are logged like all others.
    logger: { disabled: true },
  } satisfies BetterAuthOptions;
}

/** Makes an instance for this replica. It does not use the database before its first call. */
export async function createAuth(app: App, mailer: Mailer | undefined, extra: Partial<BetterAuthOptions> = {}) {
  const { betterAuth } = await import('better-auth');
  const options = optionsOf(app, mailer);
  const adapter = await createAdapter(app.db, options);
  return betterAuth({ ...options, ...extra, database: () => adapter });
}

export type Auth = Awaited<ReturnType<typeof createAuth>>;
export type GetAuth = () => Promise<Auth>;

/**
 * Makes the better-auth instance at its first use, because the library takes 60 MB of memory, which a service without a
 * dashboard can save.
 */
export function lazyAuth(app: App, mailer: Mailer | undefined): GetAuth {
  let auth: Promise<Auth> | undefined;
  return () => {
    auth ??= createAuth(app, mailer);
    return auth;
  };
}
