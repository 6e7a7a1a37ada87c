// The person's side of a device login: a signed-in person looks up a user code, and approves or denies the login. User
// codes are short, so guessing is limited: after five wrong codes an account must wait for ten minutes.
import { DEVICE_LOGIN_BOUNDS, type DeviceLogin } from '@sandbar/contract/device-login.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { checkKeyCount } from '../api-keys/manage.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { KeyScope } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { formatUserCode, hashUserCode } from './codes.ts';
import { answerLogin, countWrongCode, type DeviceLoginRow, findByUserCode, lockGuesses } from './store.ts';

/** Who answers, and the code as they typed it. */
export type Entry = { accountId: string; userCode: string };

/**
 * Returns what the person needs to know before they answer. Throws `not_found` for an unknown code, `expired_token`,
 * `conflict` for a code that was answered already, and `rate_limited` after too many wrong codes.
 */
export async function lookUpLogin(app: App, entry: Entry): Promise<DeviceLogin> {
  return withLogin(app, entry, async (_tx, login) => {
    if (login.state !== 'pending') throw isAnswered();
    return {
      user_code: formatUserCode(entry.userCode),
      name: login.name,
      address: login.address,
      created_at: login.created_at.toISOString(),
      expires_at: login.expires_at.toISOString(),
    };
  });
}

/**
 * Allows the program to take an API key of this scope. Approving again with the same scope does nothing. Throws as
 * `lookUpLogin` does, and `conflict` when the account already has the maximum number of keys.
 */
export async function approveLogin(app: App, entry: Entry, scope: KeyScope): Promise<void> {
  const { accountId } = entry;
  await withLogin(app, entry, async (tx, { id, state, account_id, scope: chosen }) => {
    const isRepeated = (state === 'approved' || state === 'taken') && account_id === accountId && chosen === scope;
    if (isRepeated) return;
    await checkKeyCount(tx, accountId);
    if (!(await answerLogin(tx, id, { state: 'approved', account_id: accountId, scope }))) throw isAnswered();
  });
}

/** Refuses the login. Denying again does nothing. Throws as `lookUpLogin` does. */
export async function denyLogin(app: App, entry: Entry): Promise<void> {
  const { accountId } = entry;
  await withLogin(app, entry, async (tx, { id, state, account_id }) => {
    if (state === 'denied' && account_id === accountId) return;
    if (!(await answerLogin(tx, id, { state: 'denied', account_id: accountId }))) throw isAnswered();
  });
}

/** Runs `work` with the login of a user code, which stays locked until `work` is done. Counts a wrong code. */
async function withLogin<T>(
  app: App,
  { accountId, userCode }: Entry,
  work: (tx: Tx, login: DeviceLoginRow) => Promise<T>,
): Promise<T> {
  // For a wrong code the transaction returns the error. Throwing it would roll back the count of wrong codes.
  const result = await inTransaction(app.db, async (tx) => {
    const { left, resetSec } = await lockGuesses(tx, accountId);
    if (left === 0) throw tooManyGuesses(resetSec);
    const login = await findByUserCode(tx, hashUserCode(userCode, app.config.secret));
    if (!login) {
      await countWrongCode(tx, accountId);
      return new ServiceError(
        'not_found',
        'There is no login with this code. Compare it with the code in the terminal.',
      );
    }
    if (!login.isLive) throw new ServiceError('expired_token', 'This code has expired. Run the login again.');
    return { value: await work(tx, login) };
  });
  if (result instanceof ServiceError) throw result;
  return result.value;
}

const isAnswered = (): ServiceError =>
  new ServiceError('conflict', 'This code was approved or denied already. Run the login again for another code.');

function tooManyGuesses(retryAfterSec: number): ServiceError {
  const detail = `This account entered ${DEVICE_LOGIN_BOUNDS.wrongCodes} wrong codes. Retry in ${retryAfterSec} s.`;
  return new ServiceError('rate_limited', detail, { retryAfterSec });
}
