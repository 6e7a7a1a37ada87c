// `sandbar activity`: what was done in the account, newest first.
import { ACTIVITY_CATEGORIES, type ActivityEntry } from '@sandbar/contract/activity.ts';
import { type Command, connect, onlyGiven, printJson, readArguments, readInteger } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar activity [MACHINE] [--category ${ACTIVITY_CATEGORIES.join('|')}] [--search TEXT]
                        [--from TIME] [--to TIME] [--limit N] [--json]

Newest first, 50 entries unless --limit says otherwise. Times are RFC 3339, such as 2026-01-31T12:00:00Z.`;

const DEFAULT_LIMIT = 50;

async function runActivity(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, {
    category: { type: 'string' },
    search: { type: 'string' },
    from: { type: 'string' },
    to: { type: 'string' },
    limit: { type: 'string' },
    json: { type: 'boolean', default: false },
  });
  const category = ACTIVITY_CATEGORIES.find((name) => name === values.category);
  if (values.category !== undefined && category === undefined) {
    throw new UsageError(`--category must be one of ${ACTIVITY_CATEGORIES.join(', ')}, not "${values.category}"`);
  }
  const limit = readInteger('--limit', values.limit) ?? DEFAULT_LIMIT;
  const { from, to, search: q } = values;
  const [machineId] = positionals;
  const entries: ActivityEntry[] = [];
  for await (const entry of connect().account.activity(onlyGiven({ machineId, category, q, from, to }))) {
    if (entries.length === limit) break;
    entries.push(entry);
  }
  if (values.json) printJson(entries);
  else printEntries(entries);
  return 0;
}

function printEntries(entries: readonly ActivityEntry[]): void {
  if (entries.length === 0) {
    console.log('No activity.');
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
  console.log(formatTable(['TIME', 'ACTION', 'ACTOR', 'MACHINE', 'DETAILS'], rows));
}

export const activity: Command = {
  name: 'activity',
  summary: 'shows what was done: sandbar activity [MACHINE]',
  help: HELP,
  run: runActivity,
};
