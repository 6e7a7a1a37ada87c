// Signing in by password. better-auth's own sign-in refuses an e-mail address whose domain has no dot, such as that of
// the first account, owner@localhost. So this module calls better-auth's inner functions instead.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import type { Auth } from './better-auth.ts';
import { sessionSecret, writeSessionCookie } from './cookie.ts';
import { hashPassword, PASSWORD_PROVIDER, verifyPassword } from './password.ts';
import { endSession } from './store.ts';

export type SignedIn = { accountId: string; cookie: string };

/**
 * Begins a session. A wrong password, an account without a password and an unknown address are all refused with the
 * same `unauthenticated` and after the same work, so that nobody can find out which addresses have an account.
 */
export async function signIn(
  app: App,
  auth: Auth,
  email: string,
  password: string,
  userAgent: string,
): Promise<SignedIn> {
  const { signIns } = app.metrics;
  try {
    const signedIn = await beginSession(app, auth, email, password, userAgent);
    signIns.inc({ outcome: 'accepted' });
    return signedIn;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'unauthenticated') signIns.inc({ outcome: 'refused' });
    throw error;
  }
}

async function beginSession(
  app: App,
  auth: Auth,
  email: string,
  password: string,
  userAgent: string,
): Promise<SignedIn> {
  const { internalAdapter } = await auth.$context;
  const found = await internalAdapter.findUserByEmail(email, { includeAccounts: true });
  const hash = found?.accounts.find(({ providerId }) => providerId === PASSWORD_PROVIDER)?.password;
  if (!found || !hash) {
    await hashPassword(password);
    throw refusal();
  }
  if (!(await verifyPassword({ hash, password }))) throw refusal();
  const accountId = found.user.id;
  const { token } = await internalAdapter.createSession(accountId, false, { userAgent: userAgent.slice(0, 255) });
  // A password change ends all sessions that exist at that time. If the password changed after it was checked above,
  // that change may have missed this new session. So check again whether the stored hash is still the same.
  const { password: now } = (await internalAdapter.findCredentialAccount(accountId)) ?? {};
  if (now !== hash) {
    await endSession(app.db, token);
    throw refusal();
  }
  const isSecure = app.config.auth.publicUrl.startsWith('https:');
  return { accountId, cookie: writeSessionCookie(token, sessionSecret(app.config.secret), isSecure) };
}

const refusal = (): ServiceError =>
  new ServiceError('unauthenticated', 'The email address or the password is not right.');
