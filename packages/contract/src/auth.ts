// Signing in to the dashboard: the requests of its forms. The answer is the account, or has no body; the session itself
// is in a cookie that no script can read.
import { type Static, Type } from 'typebox';
import { PASSWORD_BOUNDS } from './password-bounds.ts';
import { EMAIL_PATTERN } from './patterns.ts';

const strict = { additionalProperties: false };

const Email = Type.String({
  minLength: 3,
  maxLength: 254,
  pattern: EMAIL_PATTERN,
  description: 'In any case.',
});
const NewPassword = Type.String({ ...PASSWORD_BOUNDS });
/** A password to check. It has no minimum length: a password that is too short is simply a wrong password. */
const Password = Type.String({ maxLength: PASSWORD_BOUNDS.maxLength });

export const SignUp = Type.Object(
  { email: Email, password: NewPassword, name: Type.Optional(Type.String({ maxLength: 255, default: '' })) },
  { title: 'SignUp', ...strict },
);
export type SignUp = Static<typeof SignUp>;

export const SignIn = Type.Object({ email: Email, password: Password }, { title: 'SignIn', ...strict });
export type SignIn = Static<typeof SignIn>;

export const PasswordChange = Type.Object(
  { current_password: Password, new_password: NewPassword },
  { title: 'PasswordChange', ...strict },
);
export type PasswordChange = Static<typeof PasswordChange>;

export const PasswordConfirmation = Type.Object({ password: Password }, { title: 'PasswordConfirmation', ...strict });
export type PasswordConfirmation = Static<typeof PasswordConfirmation>;

export const PasswordResetRequest = Type.Object({ email: Email }, { title: 'PasswordResetRequest', ...strict });
export type PasswordResetRequest = Static<typeof PasswordResetRequest>;

export const PasswordReset = Type.Object(
  {
    token: Type.String({ minLength: 1, maxLength: 256, description: 'From the link in the mail, after #token=.' }),
    new_password: NewPassword,
  },
  { title: 'PasswordReset', ...strict },
);
export type PasswordReset = Static<typeof PasswordReset>;

export const OidcSignInQuery = Type.Object({
  confirm: Type.Optional(Type.Boolean({ description: 'Whether the provider asks the person again.' })),
});

/** The query parameters that the OpenID provider adds to our callback URL when it redirects the browser back to us. */
export const OidcCallbackQuery = Type.Object(
  Object.fromEntries(
    ['code', 'state', 'iss', 'session_state', 'scope', 'error', 'error_description', 'error_uri'].map((name) => [
      name,
      // Even at their maximum lengths they fit together into the 16 KiB that Node accepts for a request line.
      Type.Optional(Type.String({ maxLength: name === 'code' ? 4096 : 1024 })),
    ]),
  ),
);
