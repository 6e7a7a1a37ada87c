// Signing up, which works only where the operator allowed it (SANDBAR_SIGN_UP=open).
import type { SignUp } from '@sandbar/contract/auth.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Auth } from './better-auth.ts';
import { refusalCode, withRefusals } from './errors.ts';

export type SignedUp = { accountId: string; headers: Headers };

/**
 * Makes an account and signs in to it; the cookie is in the headers returned.
 * Throws `validation_error` for an invalid e-mail address, and `conflict` for one that has an account.
 */
export async function signUp(auth: Auth, { email, password, name = '' }: SignUp, headers: Headers): Promise<SignedUp> {
  const body = { email, password, name };
  try {
    const made = await withRefusals(() => auth.api.signUpEmail({ body, headers, returnHeaders: true }));
    return { accountId: made.response.user.id, headers: made.headers };
  } catch (error) {
    // A parallel request made an account with this address after better-auth had checked that there was none.
    const isFailedInsert = refusalCode(error) === 'FAILED_TO_CREATE_USER';
    const { internalAdapter } = await auth.$context;
    if (!isFailedInsert || !(await internalAdapter.findUserByEmail(email))) throw error;
    throw new ServiceError('conflict', 'There is an account with this email already.', { cause: error });
  }
}
