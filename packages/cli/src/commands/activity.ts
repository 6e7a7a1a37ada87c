// `sandbar activity`: prints the activity feed of the account, newest entry first.
import { type Command, Option } from '@commander-js/extra-typings';
import { ACTIVITY_CATEGORIES, type ActivityEntry, type ActivityList } from '@sandbar/contract/activity.ts';
import type { ActivityFilter } from '@sandbar/sdk/account.ts';
import { onlyGiven, parseId, parseInteger } from '../arguments.ts';
import { connect } from '../connect.ts';
import { printJson, printLine, printTable } from '../print.ts';

const DEFAULT_LIMIT = 50;

export function defineActivity(command: Command): void {
  command
    .argument('[machine]', 'the id of a machine: only its entries', parseId)
    .addOption(new Option('--category <category>', 'only entries of this kind').choices(ACTIVITY_CATEGORIES))
    .option('--search <text>', 'only entries with this text')
    .option('--from <time>', 'only entries from this time on, such as 2026-01-31T12:00:00Z')
    .option('--to <time>', 'only entries up to this time')
    .option('--limit <n>', `how many entries (${DEFAULT_LIMIT})`, parseInteger)
    .option('--json', 'print the answer of the API')
    .action(async (machineId, { search: q, limit = DEFAULT_LIMIT, json, ...rest }) => {
      const found = await readFeed(onlyGiven({ machineId, q, ...rest }), limit);
      if (json) printJson(found);
      else printEntries(found.activity);
    });
}

/** Reads pages until there are `limit` entries, and returns them as one page with the `next_cursor` of the last. */
async function readFeed(filter: ActivityFilter, limit: number): Promise<ActivityList> {
  const { account } = connect();
  const activity: ActivityEntry[] = [];
  let cursor: string | undefined;
  while (activity.length < limit && cursor !== '') {
    const page: ActivityList = await account.activityPage(filter, { pageSize: limit - activity.length, cursor });
    activity.push(...page.activity);
    cursor = page.next_cursor;
  }
  return { activity, next_cursor: cursor ?? '' };
}

function printEntries(entries: readonly ActivityEntry[]): void {
  if (entries.length === 0) {
    printLine('No activity.');
    return;
  }
  const rows = entries.map(({ created_at, action, actor, machine_id, metadata }) => [
    created_at,
    action,
    actor,
    machine_id ?? '-',
    Object.entries(metadata)
      .map(([key, value]) => `${key}=${value ?? '-'}`)
      .join(' '),
  ]);
  printTable(['TIME', 'ACTION', 'ACTOR', 'MACHINE', 'DETAILS'], rows);
}
