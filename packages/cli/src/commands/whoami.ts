// `sandbar whoami`: says which account, service and key the other commands use.
import type { Command } from '@commander-js/extra-typings';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { findKeyOrigin } from '../key-origin.ts';
import { printJson, printLine } from '../print.ts';

export function defineWhoami(command: Command): void {
  command
    .option('--json', 'print the account as the API shows it')
    .addHelpText(
      'after',
      `
The key is SANDBAR_API_KEY, else the one in the file of sandbar login, else the one in credentials.json of the service
on this computer.`,
    )
    .action(async ({ json }) => {
      const client = connect();
      const account = await client.account.get();
      if (json) {
        printJson(account);
        return;
      }
      printLine(`account  ${account.email} (${account.id})`);
      printLine(`tier     ${account.tier}, ${account.billing_mode}`);
      printLine(`service  ${client.baseUrl}`);
      printLine(`key      from ${findKeyOrigin(client.baseUrl)}`);
    });
  addExamples(command, 'sandbar whoami');
}
