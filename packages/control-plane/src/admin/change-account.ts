// Makes one change of the operator to an account, in one transaction.
import type { AccountDetails } from '@sandbar/contract/admin.ts';
import { requireNotDeleted } from '../accounts/status.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { toDetails } from './account-record.ts';
import { findAccount, findAccountToChange } from './account-store.ts';

/** Refuses an account by throwing. */
export type Check = (account: AccountRow) => void;
type Work<T> = (tx: Tx, account: AccountRow) => Promise<T>;

/**
 * Changes the account with this id or e-mail address and returns it as it is after the change, with the result of
 * `work`, which gets the locked row. Throws `not_found` for an absent account.
 */
export function changeAccount<T>(
  { db, config }: App,
  idOrEmail: string,
  work: Work<T>,
): Promise<{ details: AccountDetails; result: T }> {
  return inTransaction(db, async (tx) => {
    const account = await findAccountToChange(tx, idOrEmail);
    const result = await work(tx, account);
    return { details: toDetails(await findAccount(tx, account.id), config.rates), result };
  });
}

/** As `changeAccount`, for an account that is not deleted. Throws `conflict` for a deleted account. */
export async function changeLiveAccount(app: App, idOrEmail: string, work: Work<unknown>): Promise<AccountDetails> {
  const { details } = await changeAccount(app, idOrEmail, (tx, account) => {
    requireNotDeleted(account);
    return work(tx, account);
  });
  return details;
}
