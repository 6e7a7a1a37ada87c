// `sandbar usage`: prints what the account used and what that cost.
import { type Command, Option } from '@commander-js/extra-typings';
import type { Usage, UsageItem } from '@sandbar/contract/billing.ts';
import { onlyGiven, parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printTable } from '../print.ts';
import { BY_NAME, resolveGiven } from '../resolve-id.ts';

export function defineUsage(command: Command): void {
  const defined = command
    .option('--from <time>', 'from this time on, such as 2026-01-31T12:00:00Z (the first of this month, UTC)')
    .option('--to <time>', 'up to this time (now)')
    .option('--by <group>', 'day, resource, kind or metadata.KEY (kind)')
    .option('--machine <machine>', `only the use of this machine, ${BY_NAME}`, parseId)
    .addOption(new Option('--csv', 'print CSV').conflicts('json'))
    .option('--json', 'print the answer of the API')
    .action(async ({ from, to, by: groupBy, machine, csv, json }) => {
      const client = connect();
      const { billing } = client;
      const machineId = await resolveGiven(client, 'machine', machine);
      const filter = onlyGiven({ from, to, groupBy, machineId });
      if (csv) {
        process.stdout.write(await billing.usageCsv(filter));
        return;
      }
      const usage = await billing.usage(filter);
      if (json) printJson(usage);
      else printUsage(usage, groupBy);
    });
  addExamples(defined, 'sandbar usage --by day', 'sandbar usage --machine web --from 2026-01-01T00:00:00Z --csv');
}

function printUsage({ from, to, items, total, balance }: Usage, groupBy = 'kind'): void {
  printLine(`${from} to ${to}`);
  const [heading, cellOf] = groupColumn(groupBy);
  const rows = items.map((item) => [...cellOf(item), item.kind, item.quantity, item.unit, item.amount]);
  if (rows.length > 0) printTable([...heading, 'KIND', 'QUANTITY', 'UNIT', 'EUR'], rows);
  printLine(`total ${total} EUR, balance ${balance} EUR`);
}

/** The headings and cells that name an item's group. */
function groupColumn(groupBy: string): [headings: string[], cells: (item: UsageItem) => string[]] {
  if (groupBy === 'day') return [['DAY'], ({ day }) => [day ?? '-']];
  if (groupBy === 'resource') {
    return [['RESOURCE', 'ID'], ({ resource_kind, resource_id }) => [resource_kind ?? '-', resource_id ?? '-']];
  }
  if (groupBy === 'kind') return [[], () => []];
  return [[groupBy.replace(/^metadata\./, '')], ({ metadata_value }) => [metadata_value ?? '-']];
}
