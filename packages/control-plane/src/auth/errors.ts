// Translates better-auth's errors into errors of our table. An error that is not listed here is a bug and becomes a
// 500.
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';

const DEAD_LINK = 'token is unknown, was used or has expired. Ask for another link.';

const REFUSALS: Record<string, [ErrorCode, string]> = {
  INVALID_EMAIL: ['validation_error', 'email must be an address such as name@example.com.'],
  VALIDATION_ERROR: ['validation_error', 'email must be an address such as name@example.com.'],
  INVALID_PASSWORD: ['validation_error', 'current_password is not the password of this account.'],
  CREDENTIAL_ACCOUNT_NOT_FOUND: ['conflict', 'The account has no password yet. Ask for a link to set one.'],
  USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL: ['conflict', 'There is an account with this email already.'],
  INVALID_TOKEN: ['validation_error', DEAD_LINK],
  USER_NOT_FOUND: ['validation_error', DEAD_LINK],
  UNAUTHORIZED: ['unauthenticated', 'The session is unknown or has ended. Sign in again.'],
};

/** Calls better-auth. Throws a ServiceError in place of a listed error, and every other error unchanged. */
export async function withRefusals<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    const refusal = REFUSALS[refusalCode(error) ?? ''];
    throw refusal ? new ServiceError(refusal[0], refusal[1], { cause: error }) : error;
  }
}

/**
 * Returns the code of a better-auth error. It checks the fields of the error and not its class, because importing the
 * class would load the library.
 */
export function refusalCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || error.name !== 'APIError' || !('body' in error)) return undefined;
  const { body } = error;
  if (typeof body !== 'object' || body === null || !('code' in body)) return undefined;
  return typeof body.code === 'string' ? body.code : undefined;
}
