// `sandbar activity`: prints the activity feed of the account, newest entry first, or follows it.
import { type Command, Option } from '@commander-js/extra-typings';
import { ACTIVITY_CATEGORIES, type ActivityEntry, type ActivityList } from '@sandbar/contract/activity.ts';
import type { ActivityFilter } from '@sandbar/sdk/activity.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { onlyGiven, parseId, parseInteger } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption } from '../interruption.ts';
import { printJson, printLine, printRows } from '../print.ts';
import { BY_NAME, resolveGiven } from '../resolve-id.ts';

const DEFAULT_LIMIT = 50;

const HEADINGS = ['TIME', 'ACTION', 'ACTOR', 'MACHINE', 'DETAILS'];

export function defineActivity(command: Command): void {
  const defined = command
    .argument('[machine]', `only entries of this machine, ${BY_NAME}`, parseId)
    .addOption(new Option('--category <category>', 'only entries of this kind').choices(ACTIVITY_CATEGORIES))
    .option('--search <text>', 'only entries with this text')
    .option('--from <time>', 'only entries from this time on, such as 2026-01-31T12:00:00Z')
    .option('--to <time>', 'only entries up to this time')
    .option('--limit <n>', `how many entries (${DEFAULT_LIMIT})`, parseInteger)
    .addOption(
      new Option('-f, --follow', 'print new entries as they come, until Ctrl-C').conflicts(['from', 'to', 'limit']),
    )
    .option('--json', 'print the answer of the API; with -f, each entry as a line of JSON')
    .action(async (machine, { search: q, limit = DEFAULT_LIMIT, follow, json, ...rest }) => {
      const client = connect();
      const machineId = await resolveGiven(client, 'machine', machine);
      const filter = onlyGiven({ machineId, q, ...rest });
      if (follow) return followFeed(client, filter, json);
      const found = await readFeed(client, filter, limit);
      if (json) printJson(found);
      else printRows(HEADINGS, found.activity.map(rowOf), 'No activity.');
    });
  addExamples(defined, 'sandbar activity web --limit 10', 'sandbar activity -f');
}

async function followFeed(client: Client, filter: ActivityFilter, isJson: boolean | undefined): Promise<void> {
  for await (const entry of client.activity.follow(filter, { signal: onInterruption() })) {
    if (isJson) console.log(JSON.stringify(entry));
    else printLine(rowOf(entry).join('  '));
  }
}

/** Reads pages until there are `limit` entries. Returns them as one page with the `next_cursor` of the last page. */
async function readFeed({ activity: feed }: Client, filter: ActivityFilter, limit: number): Promise<ActivityList> {
  const activity: ActivityEntry[] = [];
  let cursor: string | undefined;
  while (activity.length < limit && cursor !== '') {
    const page: ActivityList = await feed.page(filter, { pageSize: limit - activity.length, cursor });
    activity.push(...page.activity);
    cursor = page.next_cursor;
  }
  return { activity, next_cursor: cursor ?? '' };
}

function rowOf({ created_at, action, actor, machine_id, metadata }: ActivityEntry): string[] {
  const details = Object.entries(metadata).map(([key, value]) => `${key}=${value ?? '-'}`);
  return [created_at, action, actor, machine_id ?? '-', details.join(' ')];
}
