// `sandbar admin account`: whom the service serves, and how much of it each may use.
import { BILLING_MODES, TIERS } from '@sandbar/contract/account.ts';
import {
  ACCOUNT_LIMITS,
  ACCOUNT_RATES,
  type AccountDetails,
  type AccountSummary,
  CREDIT_KINDS,
  type NewAccount,
  type NewKey,
  type NewPassword,
} from '@sandbar/contract/admin.ts';
import { KEY_SCOPES } from '@sandbar/contract/api-key.ts';
import { callAdmin } from '../admin-socket.ts';
import { onlyGiven, printJson, readArguments, readChoice, readInteger, readRequired } from '../command.ts';
import { UsageError } from '../usage-error.ts';
import type { Action } from './admin.ts';
import { printAccount, printAccounts, printSecrets } from './admin-account-text.ts';

export const ACCOUNT_HELP = `  account create --email E [--tier ${TIERS.join('|')}] [--billing ${BILLING_MODES.join('|')}] [--credit EUR]
                      makes an account and shows its key and its password, once. Unmetered, unless there is a credit
  account list        all accounts
  account show ID     tier, billing, balance, use and limits
  account tier ID TIER
  account credit ID --eur N --as top-up|bonus
                      adds money to the wallet; the first top-up moves free to payg
  account limits ID [--machines N] [--vcpus N] [--memory-mb N] [--storage-gb N] [--volumes N] [--vcpus-per-machine N]
                    [--memory-mb-per-machine N] [--rate-mutating N] [--rate-exec N]
                      N, or default for the tier's own; rates are requests a second
  account password ID makes a new password, shows it once and ends all sessions
  account key ID [--scope read|full] [--name N]
                      makes one more key and shows it once`;

const JSON_OPTION = { json: { type: 'boolean', default: false } } as const;
const TEXT = { type: 'string' } as const;

async function create(args: readonly string[]): Promise<number> {
  const options = { ...JSON_OPTION, email: TEXT, tier: TEXT, billing: TEXT, credit: TEXT };
  const { values, positionals } = readArguments(args, options);
  readPositionals(positionals, [], 'create --email E');
  const made = await callAdmin<NewAccount>('/admin/accounts', {
    email: readRequired('--email', values.email),
    ...onlyGiven({
      tier: readChoice('--tier', TIERS, values.tier),
      billing_mode: readChoice('--billing', BILLING_MODES, values.billing),
      credit_eur: values.credit,
    }),
  });
  return values.json ? printed(made) : printSecrets(made);
}

async function list(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, JSON_OPTION);
  readPositionals(positionals, [], 'list');
  const { accounts } = await callAdmin<{ accounts: AccountSummary[] }>('/admin/accounts');
  return values.json ? printed(accounts) : printAccounts(accounts);
}

async function show(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, JSON_OPTION);
  const [id] = readPositionals(positionals, ['ID'], 'show ID');
  const account = await callAdmin<AccountDetails>(pathOf(id));
  return values.json ? printed(account) : printAccount(account);
}

async function setTier(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, JSON_OPTION);
  const [id, tier] = readPositionals(positionals, ['ID', 'TIER'], 'tier ID TIER');
  const account = await callAdmin<AccountDetails>(`${pathOf(id)}/tier`, { tier: readChoice('TIER', TIERS, tier) });
  return values.json ? printed(account) : printAccount(account);
}

async function credit(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, { ...JSON_OPTION, eur: TEXT, as: TEXT });
  const [id] = readPositionals(positionals, ['ID'], 'credit ID --eur N --as bonus');
  const kind = readChoice('--as', CREDIT_KINDS, readRequired('--as', values.as));
  const body = { eur: readRequired('--eur', values.eur), as: kind };
  const account = await callAdmin<AccountDetails>(`${pathOf(id)}/credit`, body);
  return values.json ? printed(account) : printAccount(account);
}

const OVERRIDES = [...ACCOUNT_LIMITS, ...ACCOUNT_RATES].map((name) => ({ name, option: name.replaceAll('_', '-') }));

async function setLimits(args: readonly string[]): Promise<number> {
  const given = Object.fromEntries(OVERRIDES.map(({ option }) => [option, TEXT]));
  const { values, positionals } = readArguments<Record<string, { type: 'string' | 'boolean' }>>(args, {
    ...JSON_OPTION,
    ...given,
  });
  const [id] = readPositionals(positionals, ['ID'], 'limits ID --machines 10');
  const body = onlyGiven(
    Object.fromEntries(OVERRIDES.map(({ name, option }) => [name, readOverride(option, values[option])])),
  );
  if (Object.keys(body).length === 0)
    throw new UsageError('which limit? sandbar admin account limits ID --machines 10');
  const account = await callAdmin<AccountDetails>(`${pathOf(id)}/limits`, body);
  return values.json ? printed(account) : printAccount(account);
}

async function newPassword(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, JSON_OPTION);
  const [id] = readPositionals(positionals, ['ID'], 'password ID');
  const made = await callAdmin<NewPassword>(`${pathOf(id)}/password`, {});
  return values.json ? printed(made) : printSecrets(made);
}

async function newKey(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, { ...JSON_OPTION, scope: TEXT, name: TEXT });
  const [id] = readPositionals(positionals, ['ID'], 'key ID');
  const body = onlyGiven({ scope: readChoice('--scope', KEY_SCOPES, values.scope), name: values.name });
  const made = await callAdmin<NewKey>(`${pathOf(id)}/keys`, body);
  return values.json ? printed(made) : printSecrets(made);
}

const pathOf = (idOrEmail: string) => `/admin/accounts/${encodeURIComponent(idOrEmail)}`;

function printed(value: unknown): number {
  printJson(value);
  return 0;
}

/** As many as there are names. Throws UsageError. */
function readPositionals<const T extends readonly string[]>(
  given: readonly string[],
  names: T,
  usage: string,
): { [K in keyof T]: string } {
  if (given.length === names.length && !given.includes('')) return given as { [K in keyof T]: string };
  throw new UsageError(`usage: sandbar admin account ${usage}`);
}

/** A whole number, or null for `default`. */
function readOverride(option: string, text: string | boolean | undefined): number | null | undefined {
  return text === 'default' ? null : readInteger(`--${option}`, text === undefined ? undefined : String(text));
}

export const ACCOUNT_ACTIONS: Record<string, Action> = {
  create,
  list,
  show,
  tier: setTier,
  credit,
  limits: setLimits,
  password: newPassword,
  key: newKey,
};
