// `sandbar admin account credit|billing`: the money of an account.
import { Argument, type Command, Option } from '@commander-js/extra-typings';
import { BILLING_MODES } from '@sandbar/contract/account.ts';
import { type AccountCredited, CREDIT_KINDS } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../admin-socket.ts';
import { onlyGiven, parseId } from '../arguments.ts';
import { printNotice } from '../print.ts';
import { printDetails } from './admin-account-text.ts';
import { pathOf } from './admin-path.ts';

export function defineMoney(command: Command): void {
  command
    .command('credit')
    .description('adds money to the wallet; the first top-up moves free to payg')
    .argument('<account>', 'the account', parseId)
    .requiredOption('--eur <n>', 'the amount in EUR; only a correction may be less than 0')
    .addOption(new Option('--as <kind>', 'the kind of entry').choices(CREDIT_KINDS).makeOptionMandatory())
    .option(
      '--reference <text>',
      'a unique name of this payment; a second credit with the same reference changes nothing',
    )
    .option('--note <text>', 'the reason, which the account can read')
    .option('--json', 'print the answer as JSON')
    .action(async (id, { json, ...credit }) => {
      const account = await callAdmin<AccountCredited>(`${pathOf(id)}/credit`, onlyGiven(credit));
      printDetails(account, json);
      if (!account.is_new) printNotice('the ledger already has an entry with this reference; nothing was changed');
    });
  command
    .command('billing')
    .description('sets whether an account pays for its use; use up to now is charged by the old mode')
    .argument('<account>', 'the account', parseId)
    .addArgument(new Argument('<mode>', 'its new billing mode').choices(BILLING_MODES))
    .option('--json', 'print the answer as JSON')
    .action(async (id, mode, { json }) => {
      printDetails(await callAdmin(`${pathOf(id)}/billing`, { billing_mode: mode }), json);
    });
}
