// The program's side of a device login: it asks for codes, then polls until the person has answered.
//
// better-auth has a plugin for device logins, but it does not fit. It gives the program a session, not an API key. It
// deletes the approved code in one statement and makes the credential in another, so a crash between them loses the
// login. It reads the login and writes the answer in two steps, so two parallel answers can both succeed. And it stores
// both codes in plain text.
import type { NewApiKey } from '@sandbar/contract/api-key.ts';
import { DEVICE_LOGIN_BOUNDS, type DeviceCode } from '@sandbar/contract/device-login.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { lockAccount } from '../accounts/store.ts';
import { addKey } from '../api-keys/manage.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { generateDeviceCode, generateUserCode, hashDeviceCode, hashUserCode } from './codes.ts';
import { insertLogin, notePoll, type Poll, setTaken } from './store.ts';

/** The path of the dashboard's page where a person enters the code. */
const PAGE = '/device';
/** Two logins with the same user code are so rare that a third collision in a row is a bug. */
const ATTEMPTS = 3;

/** Begins a login. `name` is what the program says is the name of its computer. */
export async function beginLogin(app: App, name: string, address: string): Promise<DeviceCode> {
  const page = `${app.config.auth.publicUrl}${PAGE}`;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const deviceCode = generateDeviceCode();
    const userCode = generateUserCode();
    const hashes = { deviceCode: hashDeviceCode(deviceCode), userCode: hashUserCode(userCode, app.config.secret) };
    if (!(await insertLogin(app.db, hashes, { name, address }))) continue;
    return {
      device_code: deviceCode,
      user_code: userCode,
      verification_uri: page,
      verification_uri_complete: `${page}?user_code=${userCode}`,
      expires_in: DEVICE_LOGIN_BOUNDS.codeSec,
      interval: DEVICE_LOGIN_BOUNDS.intervalSec,
    };
  }
  throw new Error('Every new user code was in use.');
}

/**
 * Makes the API key of an approved login and returns it. The key is made in the transaction that marks the login as
 * taken, so it is made once, and an approved login survives a crash of the service.
 *
 * Throws `authorization_pending`, `slow_down`, `access_denied`, `expired_token`, and `conflict` when the account
 * already has the maximum number of keys. After a `conflict` the program can poll again.
 */
export async function pollLogin(app: App, deviceCode: string): Promise<NewApiKey> {
  // The transaction returns these errors. Throwing them would roll back the time of the poll.
  const result = await inTransaction(app.db, async (tx) => {
    const poll = await notePoll(tx, hashDeviceCode(deviceCode));
    if (!poll?.isLive || poll.state === 'taken') return isOver();
    return refusalOf(poll) ?? takeKey(tx, poll);
  });
  if (result instanceof ServiceError) throw result;
  return result;
}

const isOver = (): ServiceError =>
  new ServiceError('expired_token', 'device_code is unknown, has expired, or its key was taken. Log in again.');

/** Returns the error when the program gets no key now, or undefined when it gets one. */
function refusalOf(poll: Poll): ServiceError | undefined {
  if (poll.state === 'denied') return new ServiceError('access_denied', 'The login was denied in the dashboard.');
  if (poll.isEarly) {
    const { slowerSec } = DEVICE_LOGIN_BOUNDS;
    return new ServiceError('slow_down', `This poll came too early. Wait ${slowerSec} seconds longer between polls.`);
  }
  if (poll.state === 'pending') {
    return new ServiceError('authorization_pending', 'Nobody has approved the code in the dashboard yet.');
  }
  return undefined;
}

async function takeKey(tx: Tx, { id, account_id: accountId, scope, name }: Poll): Promise<NewApiKey | ServiceError> {
  if (accountId === null || scope === null) throw new Error('An approved login has no account.');
  const account = await lockAccount(tx, accountId);
  if (account.suspended_at !== null || account.deleted_at !== null) {
    return new ServiceError('access_denied', 'The account that approved the login is suspended or deleted.');
  }
  const key = await addKey(tx, accountId, { name, scope, expiresAt: null });
  await setTaken(tx, id);
  return key;
}
