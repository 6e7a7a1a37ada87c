// Signing in to the dashboard: what its forms send. What they answer is the account, or nothing; the session itself is in
// a cookie that no script can read.
import { type Static, Type } from 'typebox';
import { EMAIL_PATTERN } from './patterns.ts';

const strict = { additionalProperties: false };

export const PASSWORD_BOUNDS = { minLength: 8, maxLength: 128 } as const;

const Email = Type.String({
  minLength: 3,
  maxLength: 254,
  pattern: EMAIL_PATTERN,
  description: 'In any case.',
});
const NewPassword = Type.String({ ...PASSWORD_BOUNDS });
/** Not bounded below: what is too short is simply wrong. */
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

/** What the OpenID provider adds to the address when it sends the browser back. */
export const OidcCallbackQuery = Type.Object(
  Object.fromEntries(
    ['code', 'state', 'iss', 'session_state', 'scope', 'error', 'error_description', 'error_uri'].map((name) => [
      name,
      // All of them together fit into the request line that Node reads (16 KiB).
      Type.Optional(Type.String({ maxLength: name === 'code' ? 4096 : 1024 })),
    ]),
  ),
);
