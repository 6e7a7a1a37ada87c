// Decides when a session that began at the OpenID provider counts as confirmed. A provider may answer a sign-in from a
// session of its own that is days old, without asking the person anything. So the sign-in alone confirms nothing: the
// provider must say when it last asked the person (the claim `auth_time` of the ID token).
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Db } from '../db/database.ts';
import { hasPassword } from './password.ts';

/**
 * The parameters of a sign-in that make the provider ask the person again and send `auth_time` (OpenID Connect Core,
 * 3.1.2.1). The person could remove them from the address, so only `auth_time` counts.
 */
export const ASK_AGAIN = { prompt: 'login', max_age: '0' };

const NEVER = new Date(0);
const signIns = new AsyncLocalStorage<{ askedAt: Date | undefined }>();

/** Runs the end of one sign-in. Within it, `confirmedAt` knows what the provider said. */
export const finishSignIn = <T>(work: () => Promise<T>): Promise<T> => signIns.run({ askedAt: undefined }, work);

type Tokens = { idToken?: string | undefined };
type Provider<T extends Tokens, Info> = { getUserInfo(tokens: T): Promise<Info> };

/** Makes the provider note the `auth_time` of each ID token that it has verified. */
export function noteAuthTimes<T extends Tokens, Info>(provider: Provider<T, Info>): void {
  const getUserInfo = provider.getUserInfo.bind(provider);
  provider.getUserInfo = async (tokens) => {
    // better-auth verifies the ID token in this call, and returns null if it is not valid.
    const info = await getUserInfo(tokens);
    const signIn = signIns.getStore();
    if (signIn && info !== null && tokens.idToken !== undefined) signIn.askedAt = readAuthTime(tokens.idToken);
    return info;
  };
}

/**
 * The time that the new session of an account is confirmed since. An account with a password confirms with it, so a
 * sign-in at the provider never confirms a session of such an account.
 */
export async function confirmedAt(db: Db, accountId: string): Promise<Date> {
  const askedAt = signIns.getStore()?.askedAt;
  if (askedAt === undefined || (await hasPassword(db, accountId))) return NEVER;
  // The clock of the provider may be ahead of ours.
  return new Date(Math.min(askedAt.getTime(), Date.now()));
}

/** Returns when the provider last asked the person; undefined if the ID token does not say it. */
function readAuthTime(idToken: string): Date | undefined {
  const claims: unknown = JSON.parse(Buffer.from(idToken.split('.')[1] ?? '', 'base64url').toString());
  if (typeof claims !== 'object' || claims === null || !('auth_time' in claims)) return undefined;
  return typeof claims.auth_time === 'number' ? new Date(claims.auth_time * 1000) : undefined;
}
