// Checks whether the machines of an account may run: it has money left, and the operator has not suspended it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { accountIsSuspended } from '../accounts/suspended.ts';
import type { AccountRow } from '../db/tables.ts';

/** True for a prepaid account without money. */
export const isEmpty = ({ billing_mode, balance_micros }: Pick<AccountRow, 'billing_mode' | 'balance_micros'>) =>
  billing_mode === 'prepaid' && balance_micros <= 0;

/**
 * Throws `insufficient_balance` for a prepaid account whose wallet is empty, and `forbidden` for an account that was
 * suspended or deleted after its request had begun.
 */
export function checkMayRun(account: AccountRow): void {
  if (account.deleted_at !== null) throw new ServiceError('forbidden', 'The account is deleted.');
  if (account.suspended_at !== null) throw accountIsSuspended();
  if (!isEmpty(account)) return;
  throw new ServiceError('insufficient_balance', 'The prepaid wallet of the account is empty. Top it up, then retry.');
}
