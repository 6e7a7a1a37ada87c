// Prints accounts as text on the operator's terminal.
import type { AccountDetails, AccountSummary } from '@sandbar/contract/admin.ts';
import { printJson, printLine, printRows, printTable } from '../print.ts';

const SECRETS = { account_id: 'Account', email: 'E-mail', api_key: 'API key', password: 'Password' } as const;

/** Prints a new key or password, which the service cannot show again. */
export function printSecrets(made: { [K in keyof typeof SECRETS]?: string }): void {
  for (const [name, label] of Object.entries(SECRETS)) {
    const value = made[name as keyof typeof SECRETS];
    if (value !== undefined) printLine(`${label.padEnd(10)}${value}`);
  }
  console.error('A key or a password is shown this once only.');
}

export function printAccounts(accounts: readonly AccountSummary[]): void {
  const rows = accounts.map((account) => [
    account.id,
    account.email,
    stateOf(account),
    account.tier,
    account.billing_mode,
    account.balance,
    `${account.machines}`,
    account.created_at,
  ]);
  const headings = ['ID', 'E-MAIL', 'STATE', 'TIER', 'BILLING', 'BALANCE EUR', 'MACHINES', 'CREATED'];
  printRows(headings, rows, 'No accounts.');
}

/** Prints an account as text, or, with `isJson`, as the JSON that the service has sent. */
export function printDetails(account: AccountDetails, isJson: boolean | undefined): void {
  if (isJson) printJson(account);
  else printAccount(account);
}

function printAccount(account: AccountDetails): void {
  const facts = [
    ['Account', account.id],
    ['E-mail', account.is_owner ? `${account.email} (the owner of the service)` : account.email],
    ['State', describeState(account)],
    ['Operator', account.is_operator ? 'yes' : 'no'],
    ['Tier', account.tier],
    ['Billing', account.billing_mode],
    ['Balance', `${account.balance} EUR`],
    ['Created', account.created_at],
  ];
  for (const [label = '', value] of facts) printLine(`${label.padEnd(10)}${value}`);
  printLine('');
  printTable(['LIMIT', 'USED', 'VALUE', 'OVERRIDE'], [...limitRows(account), ...rateRows(account)]);
}

const stateOf = ({ suspended_at, deleted_at }: AccountSummary): string =>
  deleted_at !== null ? 'deleted' : suspended_at !== null ? 'suspended' : 'active';

function describeState(account: AccountSummary): string {
  const since = account.deleted_at ?? account.suspended_at;
  return since === null ? stateOf(account) : `${stateOf(account)} since ${since}`;
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
