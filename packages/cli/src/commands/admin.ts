// `sandbar admin`: the commands that only the operator may use.
import type { Command } from '@commander-js/extra-typings';
import { addExamples } from '../examples.ts';
import { defineAccount } from './admin-account.ts';
import { defineBackup, defineRestore } from './admin-backup.ts';
import { addAdminExamples } from './admin-examples.ts';
import { defineFleet } from './admin-fleet.ts';
import { defineHost } from './admin-host.ts';
import { defineInvoice } from './admin-invoice.ts';
import { definePrices } from './admin-prices.ts';

export function defineAdmin(command: Command): void {
  command.addHelpText(
    'after',
    `
For the owner of the data directory ($SANDBAR_HOME), on the computer where npm start runs. An account is named by its id
or its e-mail address.`,
  );
  defineAccount(command.command('account').description('accounts: keys, passwords, tiers, credit and limits'));
  definePrices(command.command('prices').description('the prices that prepaid accounts pay'));
  defineInvoice(
    command.command('invoice').description('an invoice: what changed the wallet of an account in one month'),
  );
  defineHost(command.command('host').description('the hosts that machines run on'));
  defineFleet(command.command('fleet').description('the certificates with which the hosts are known'));
  defineBackup(command.command('backup'));
  defineRestore(command.command('restore'));
  addExamples(command, 'sandbar admin account list', 'sandbar admin host list');
  addAdminExamples(command);
}
