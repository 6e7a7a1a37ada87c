// Accounts for people to read. Every function answers the exit code.
import type { AccountDetails, AccountSummary } from '@sandbar/contract/admin.ts';
import { formatTable } from '../table.ts';

const SECRETS = { account_id: 'Account', email: 'E-mail', api_key: 'API key', password: 'Password' } as const;

/** What was made and is never shown again. */
export function printSecrets(made: { [K in keyof typeof SECRETS]?: string }): number {
  for (const [name, label] of Object.entries(SECRETS)) {
    const value = made[name as keyof typeof SECRETS];
    if (value !== undefined) console.log(`${label.padEnd(10)}${value}`);
  }
  console.log('A key or a password is shown this once only.');
  return 0;
}

export function printAccounts(accounts: readonly AccountSummary[]): number {
  if (accounts.length === 0) {
    console.log('No accounts.');
    return 0;
  }
  const rows = accounts.map((account) => [
    account.id,
    account.email,
    account.tier,
    account.billing_mode,
    account.balance,
    `${account.machines}`,
    account.created_at,
  ]);
  console.log(formatTable(['ID', 'E-MAIL', 'TIER', 'BILLING', 'BALANCE EUR', 'MACHINES', 'CREATED'], rows));
  return 0;
}

export function printAccount(account: AccountDetails): number {
  const facts = [
    ['Account', account.id],
    ['E-mail', account.is_owner ? `${account.email} (the owner of the service)` : account.email],
    ['Tier', account.tier],
    ['Billing', account.billing_mode],
    ['Balance', `${account.balance} EUR`],
    ['Created', account.created_at],
  ];
  for (const [label = '', value] of facts) console.log(`${label.padEnd(10)}${value}`);
  console.log(
    `\n${formatTable(['LIMIT', 'USED', 'VALUE', 'OVERRIDE'], [...limitRows(account), ...rateRows(account)])}`,
  );
  return 0;
}

function limitRows({ limits, used }: AccountDetails): string[][] {
  const usedBy = new Map<string, number>(Object.entries(used));
  return Object.entries(limits).map(([name, { limit, override }]) => [
    name,
    `${usedBy.get(name) ?? '-'}`,
    `${limit}`,
    `${override ?? '-'}`,
  ]);
}

function rateRows({ rates }: AccountDetails): string[][] {
  return Object.entries(rates).map(([name, { per_sec, burst, override }]) => [
    `rate_${name}`,
    '-',
    `${per_sec}/s, ${burst} at once`,
    `${override ?? '-'}`,
  ]);
}
