// `sandbar quota`: prints the account's quotas and how much of each it uses.
import type { Command } from '@commander-js/extra-typings';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printTable } from '../print.ts';

export function defineQuota(command: Command): void {
  const defined = command.option('--json', 'print the answer of the API').action(async ({ json }) => {
    const found = await connect().quotas.get();
    if (json) {
      printJson(found);
      return;
    }
    const rows = found.quotas.map(({ name, used, limit, description }) => [name, `${used}`, `${limit}`, description]);
    printLine(`tier ${found.tier}`);
    printTable(['QUOTA', 'USED', 'LIMIT', 'COUNTS'], rows);
  });
  addExamples(defined, 'sandbar quota', 'sandbar quota --json');
}
