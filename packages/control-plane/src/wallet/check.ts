// Checks whether the account's wallet has money left, so that its machines may run.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Db, Tx } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';
import { balanceOf } from './store.ts';

/** Throws `insufficient_balance` for a prepaid account whose wallet is empty. */
export async function checkBalance(db: Db | Tx, account: Pick<AccountRow, 'id' | 'billing_mode'>): Promise<void> {
  if (account.billing_mode !== 'prepaid') return;
  if ((await balanceOf(db, account.id)) > 0) return;
  throw new ServiceError('insufficient_balance', 'The prepaid wallet of the account is empty. Top it up, then retry.');
}
