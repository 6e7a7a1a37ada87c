// The device login (RFC 8628), with which a program without a browser, such as `sandbar login`, gets an API key: it shows
// a short code, and a person who is signed in to the dashboard approves the code.
import { type Static, Type } from 'typebox';
import { KEY_SCOPES } from './api-key.ts';
import { OneOf, Timestamp } from './fields.ts';
import { DEVICE_CODE_PATTERN, USER_CODE_PATTERN } from './patterns.ts';

const strict = { additionalProperties: false };

export const DEVICE_LOGIN_BOUNDS = {
  /** How long a code can be used, seconds. */
  codeSec: 600,
  /** How long a program waits between two polls, seconds. */
  intervalSec: 5,
  /** `slow_down` makes the pause this much longer (RFC 8628, section 3.5), seconds. */
  slowerSec: 5,
  /** How many wrong user codes an account can enter within `codeSec`. */
  wrongCodes: 5,
} as const;

const UserCode = Type.String({
  pattern: USER_CODE_PATTERN,
  description: 'The code that the program shows, in any case, with or without the hyphen.',
});

export const DeviceCodeCreate = Type.Object(
  {
    name: Type.String({
      minLength: 1,
      maxLength: 255,
      description: 'The name of the computer. The page of the approval shows it, and the API key gets it.',
    }),
  },
  { title: 'DeviceCodeCreate', ...strict },
);
export type DeviceCodeCreate = Static<typeof DeviceCodeCreate>;

export const DeviceCode = Type.Object(
  {
    device_code: Type.String({ description: 'The secret with which the program polls for its API key.' }),
    user_code: Type.String({ description: 'The code that the program shows to the person, such as WDJB-MJHT.' }),
    verification_uri: Type.String({ description: 'The page where the person enters the code.' }),
    verification_uri_complete: Type.String({ description: 'The same page with the code filled in.' }),
    expires_in: Type.Integer({ description: 'How long both codes can be used, seconds.' }),
    interval: Type.Integer({ description: 'How long to wait between two polls, seconds.' }),
  },
  { title: 'DeviceCode' },
);
export type DeviceCode = Static<typeof DeviceCode>;

export const DeviceKeyRequest = Type.Object(
  { device_code: Type.String({ pattern: DEVICE_CODE_PATTERN }) },
  { title: 'DeviceKeyRequest', ...strict },
);
export type DeviceKeyRequest = Static<typeof DeviceKeyRequest>;

export const UserCodeQuestion = Type.Object({ user_code: UserCode }, { title: 'UserCodeQuestion', ...strict });
export type UserCodeQuestion = Static<typeof UserCodeQuestion>;

export const DeviceLogin = Type.Object(
  {
    user_code: Type.String({ description: 'The code as the program shows it.' }),
    name: Type.String({ description: 'What the program says is the name of its computer.' }),
    address: Type.String({ description: 'The IP address that the program asked from.' }),
    created_at: Timestamp(),
    expires_at: Timestamp(),
  },
  { title: 'DeviceLogin' },
);
export type DeviceLogin = Static<typeof DeviceLogin>;

export const DeviceApproval = Type.Object(
  { user_code: UserCode, scope: OneOf(KEY_SCOPES, { description: 'The scope of the API key.' }) },
  { title: 'DeviceApproval', ...strict },
);
export type DeviceApproval = Static<typeof DeviceApproval>;
