// `sandbar admin account credit|billing`: the money of an account.
import { randomUUID } from 'node:crypto';
import { Argument, type Command, Option } from '@commander-js/extra-typings';
import { BILLING_MODES } from '@sandbar/contract/account.ts';
import { type AccountCredited, CREDIT_KINDS } from '@sandbar/contract/admin.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
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
      'a unique name of this payment (random); a second credit with the same reference changes nothing',
    )
    .option('--note <text>', 'the reason, which the account can read')
    .option('--json', 'print the answer as JSON')
    .action(async (id, { json, reference = newReference(), ...credit }) => {
      const request = { ...onlyGiven(credit), reference };
      const account = await callAdmin<AccountCredited>(`${pathOf(id)}/credit`, request).catch((error: unknown) => {
        if (!isCertain(error))
          printNotice(`the credit may have been made; to repeat it safely, add --reference '${reference}'`);
        throw error;
      });
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

/**
 * Makes the reference of a credit that has none, and prints it before anything is sent. So it is known even if this
 * process or its terminal ends before the answer comes.
 */
function newReference(): string {
  const reference = randomUUID();
  printNotice(`this credit has the reference ${reference}`);
  return reference;
}

/** What opening the socket fails with, before anything is sent. */
const NOT_SENT = ['ENOENT', 'ECONNREFUSED', 'EACCES', 'EPERM'];

/** Whether nothing was changed: the service has said so, or was never asked. */
function isCertain(error: unknown): boolean {
  if (error instanceof SandbarError) return error.status < 500;
  const { cause } = error as Error & { cause?: { code?: string } };
  return NOT_SENT.includes(cause?.code ?? '');
}
