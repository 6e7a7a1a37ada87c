// Checks whether the account's wallet has money left, so that its machines may run.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { AccountRow } from '../db/tables.ts';

/** True for a prepaid account without money. */
export const isEmpty = ({ billing_mode, balance_micros }: Pick<AccountRow, 'billing_mode' | 'balance_micros'>) =>
  billing_mode === 'prepaid' && balance_micros <= 0;

/** Throws `insufficient_balance` for a prepaid account whose wallet is empty. */
export function checkBalance(account: Pick<AccountRow, 'billing_mode' | 'balance_micros'>): void {
  if (!isEmpty(account)) return;
  throw new ServiceError('insufficient_balance', 'The prepaid wallet of the account is empty. Top it up, then retry.');
}
