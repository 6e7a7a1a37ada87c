// `sandbar admin prices`: the prices that prepaid accounts pay.
import { type Command, Option } from '@commander-js/extra-typings';
import { PRICE_NAMES, type Prices } from '@sandbar/contract/admin-billing.ts';
import { callAdmin } from '../admin-socket.ts';
import { onlyGiven, UsageError } from '../arguments.ts';
import { printJson, printLine, printTable } from '../print.ts';

const PATH = '/admin/prices';
const JSON_OPTION = ['--json', 'print the answer as JSON'] as const;

const OPTIONS = PRICE_NAMES.map((name) => ({
  name,
  option: new Option(`--${name.replaceAll('_', '-')} <eur>`, 'EUR per unit and hour'),
}));

export function definePrices(command: Command): void {
  command.option(...JSON_OPTION).action(async ({ json }) => printPrices(await callAdmin(PATH), json));
  const set = command.command('set');
  for (const { option } of OPTIONS) set.addOption(option);
  set
    .description('changes the given prices; they apply at once, also to everything in use')
    .option(...JSON_OPTION)
    .action(async (given: Record<string, unknown> & { json?: true }, { parent }) => {
      const prices = OPTIONS.map(({ name, option }) => [name, given[option.attributeName()]]);
      const body = onlyGiven(Object.fromEntries(prices));
      if (Object.keys(body).length === 0) {
        throw new UsageError('give at least one price, such as: sandbar admin prices set --vcpu-hour 0.05');
      }
      // The parent command `prices` also has --json, and takes the option when it stands before `set`.
      const isJson = given.json ?? parent?.opts().json;
      printPrices(await callAdmin(PATH, body), isJson === true);
    });
}

function printPrices({ currency, prices, since }: Prices, isJson: boolean | undefined): void {
  if (isJson) {
    printJson({ currency, prices, since });
    return;
  }
  const rows = PRICE_NAMES.map((name) => [name.replaceAll('_', '-'), prices[name]]);
  printTable(['UNIT', currency], rows);
  printLine(`In force since ${since}.`);
}
