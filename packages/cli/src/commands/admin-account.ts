// `sandbar admin account`: lists, creates and changes the accounts of the service and their limits.
import { Argument, type Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { BILLING_MODES, TIERS } from '@sandbar/contract/account.ts';
import {
  ACCOUNT_LIMITS,
  ACCOUNT_RATES,
  type AccountSummary,
  type NewAccount,
  type NewKey,
  type NewPassword,
} from '@sandbar/contract/admin.ts';
import { KEY_SCOPES } from '@sandbar/contract/api-key.ts';
import { callAdmin } from '../admin-socket.ts';
import { onlyGiven, parseId, parseInteger, UsageError } from '../arguments.ts';
import { confirm, YES_OPTION } from '../confirm.ts';
import { printJson } from '../print.ts';
import { defineMoney } from './admin-account-money.ts';
import { printAccounts, printDetails, printSecrets } from './admin-account-text.ts';
import { pathOf } from './admin-path.ts';

/** The commands that suspend and resume an account, with their descriptions. */
const STATUS_CHANGES = {
  suspend: 'suspends an account: it can only read, and its machines are stopped',
  resume: 'ends the suspension of an account; its machines stay stopped',
};

const JSON_OPTION = ['--json', 'print the answer as JSON'] as const;

export function defineAccount(command: Command): void {
  command
    .command('create')
    .description('creates an account and shows its key and its password, once')
    .requiredOption('--email <address>', 'e-mail address of its holder')
    .addOption(new Option('--tier <tier>', 'its quotas').choices(TIERS))
    .addOption(new Option('--billing <mode>', 'unmetered, unless there is a credit').choices(BILLING_MODES))
    .option('--credit <eur>', 'the first credit of its wallet, EUR')
    .option(...JSON_OPTION)
    .action(async ({ email, tier, billing, credit, json }) => {
      const body = { email, ...onlyGiven({ tier, billing_mode: billing, credit_eur: credit }) };
      const made = await callAdmin<NewAccount>('/admin/accounts', body);
      if (json) printJson(made);
      else printSecrets(made);
    });
  command
    .command('list')
    .alias('ls')
    .description('lists all accounts')
    .option(...JSON_OPTION)
    .action(async ({ json }) => {
      const answer = await callAdmin<{ accounts: AccountSummary[] }>('/admin/accounts');
      if (json) printJson(answer);
      else printAccounts(answer.accounts);
    });
  command
    .command('show')
    .description('shows tier, billing, balance, use and limits')
    .argument('<account>', 'the account', parseId)
    .option(...JSON_OPTION)
    .action(async (id, { json }) => printDetails(await callAdmin(pathOf(id)), json));
  command
    .command('tier')
    .description('moves an account to another tier')
    .argument('<account>', 'the account', parseId)
    .addArgument(new Argument('<tier>', 'its new quotas').choices(TIERS))
    .option(...JSON_OPTION)
    .action(async (id, tier, { json }) => printDetails(await callAdmin(`${pathOf(id)}/tier`, { tier }), json));
  for (const [action, description] of Object.entries(STATUS_CHANGES)) {
    command
      .command(action)
      .description(description)
      .argument('<account>', 'the account', parseId)
      .option(...JSON_OPTION)
      .action(async (id, { json }) => printDetails(await callAdmin(`${pathOf(id)}/${action}`, {}), json));
  }
  command
    .command('delete')
    .description(
      'deletes an account with its machines, volumes and snapshots, after asking; without a terminal only with --yes',
    )
    .argument('<account>', 'the account', parseId)
    .option(...YES_OPTION)
    .option(...JSON_OPTION)
    .action(async (id, { yes, json }) => {
      await confirm(`Delete the account ${id} with its machines, volumes and snapshots for good?`, yes);
      printDetails(await callAdmin(`${pathOf(id)}/delete`, {}), json);
    });
  defineMoney(command);
  command
    .command('operator')
    .description("lets an account use the operator's pages of the dashboard; the first account always may")
    .argument('<account>', 'the account', parseId)
    .option('--remove', 'takes that back')
    .option(...JSON_OPTION)
    .action(async (id, { remove, json }) => {
      printDetails(await callAdmin(`${pathOf(id)}/operator`, { is_operator: !remove }), json);
    });
  defineLimits(command.command('limits'));
  command
    .command('password')
    .description('makes a new password, shows it once and ends all sessions')
    .argument('<account>', 'the account', parseId)
    .option(...JSON_OPTION)
    .action(async (id, { json }) => {
      const made = await callAdmin<NewPassword>(`${pathOf(id)}/password`, {});
      if (json) printJson(made);
      else printSecrets(made);
    });
  command
    .command('key')
    .description('makes another key and shows it once')
    .argument('<account>', 'the account', parseId)
    .addOption(new Option('--scope <scope>', 'what it may do (full)').choices(KEY_SCOPES))
    .option('--name <name>', 'a label for the key')
    .option(...JSON_OPTION)
    .action(async (id, { json, ...spec }) => {
      const made = await callAdmin<NewKey>(`${pathOf(id)}/keys`, onlyGiven(spec));
      if (json) printJson(made);
      else printSecrets(made);
    });
}

const OVERRIDES = [...ACCOUNT_LIMITS, ...ACCOUNT_RATES].map((name) => {
  const option = new Option(`--${name.replaceAll('_', '-')} <n>`, name.startsWith('rate_') ? 'requests a second' : '');
  return { name, option: option.argParser(parseOverride) };
});

function defineLimits(command: Command): void {
  for (const { option } of OVERRIDES) command.addOption(option);
  command
    .description("overrides limits of the tier: a number, or default for the tier's own")
    .argument('<account>', 'the account', parseId)
    .option(...JSON_OPTION)
    .action(async (id, { json, ...options }) => {
      const given: Record<string, unknown> = options;
      const overrides = OVERRIDES.map(({ name, option }) => {
        const value = given[option.attributeName()];
        return [name, value === 'default' ? null : value];
      });
      const body = onlyGiven(Object.fromEntries(overrides));
      if (Object.keys(body).length === 0) {
        throw new UsageError('which limit? sandbar admin account limits ID --machines 10');
      }
      printDetails(await callAdmin(`${pathOf(id)}/limits`, body), json);
    });
}

/** A whole number, or `default`. Throws InvalidArgumentError. */
function parseOverride(text: string): number | 'default' {
  if (text === 'default') return text;
  try {
    return parseInteger(text);
  } catch {
    throw new InvalidArgumentError('It must be a whole number, or default.');
  }
}
