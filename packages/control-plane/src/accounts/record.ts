// The account in the form that the API sends.
import type { Account } from '@sandbar/contract/account.ts';
import type { App } from '../app.ts';
import { formatEur } from '../billing/money.ts';
import { getAccount, isOperator } from './store.ts';

/** Reads an account; it must exist. */
export async function readAccount({ db, config }: App, accountId: string): Promise<Account> {
  const row = await getAccount(db, accountId);
  return {
    id: row.id,
    email: row.email,
    tier: row.tier,
    billing_mode: row.billing_mode,
    balance: formatEur(row.balance_micros),
    is_operator: config.adminHttp && isOperator(row),
    created_at: row.created_at.toISOString(),
  };
}

export const exampleAccount: Account = {
  id: '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a10',
  email: 'ada@example.com',
  tier: 'payg',
  billing_mode: 'prepaid',
  balance: '12.340000',
  is_operator: false,
  created_at: '2026-01-02T03:04:05.006Z',
};
