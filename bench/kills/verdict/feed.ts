// Compares the activity feed with what the clients did: each acknowledged operation must have its entry, and there may
// be no unexpected entry.
import type { ActivityEntry, ActivityList } from '@sandbar/contract/activity.ts';
import { ask, type ClientContext } from '../client-context.ts';
import { keyOf, type Ledger } from '../ledger.ts';

/**
 * Returns the time of the newest entry, or an empty string. Entries up to that time are older than the run and are not
 * compared.
 */
export async function readNewestTime(context: ClientContext): Promise<string> {
  const list = { method: 'GET', path: '/v1/activity?page_size=1', accepts: [200] } as const;
  return (await ask<ActivityList>(context, list)).body.activity[0]?.created_at ?? '';
}

/** Compares the entries after `since` with the ledger. Returns a sentence for each difference. */
export async function checkFeed(context: ClientContext, ledger: Ledger, since: string): Promise<string[]> {
  const byKey = Map.groupBy(await readFeed(context, since), keyOf);
  const keys = new Set([...byKey.keys(), ...ledger.expected.keys()]);
  return [...keys].flatMap((key) => (ledger.isDoubtful(key) ? [] : compareEntries(ledger, key, byKey.get(key) ?? [])));
}

async function readFeed(context: ClientContext, since: string): Promise<ActivityEntry[]> {
  const entries: ActivityEntry[] = [];
  for (let cursor = ''; ; ) {
    const path = `/v1/activity?page_size=200${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
    const { body } = await ask<ActivityList>(context, { method: 'GET', path, accepts: [200] });
    const news = body.activity.filter(({ created_at }) => created_at > since);
    entries.push(...news);
    if (body.next_cursor === '' || news.length < body.activity.length) return entries;
    cursor = body.next_cursor;
  }
}

function compareEntries(ledger: Ledger, key: string, entries: readonly ActivityEntry[]): string[] {
  const { least, most, metadata } = ledger.expected.get(key) ?? { least: 0, most: 0, metadata: {} };
  const wrong = entries.filter((entry) => entry.actor !== 'user' || !hasAll(entry.metadata, metadata));
  const isRight = entries.length >= least && entries.length <= most;
  return [
    ...(isRight ? [] : [`the feed has ${entries.length} entries "${key}" instead of ${least} to ${most}`]),
    ...wrong.map(
      (entry) => `the entry "${key}" is ${JSON.stringify(entry)}, and should have ${JSON.stringify(metadata)}`,
    ),
  ];
}

const hasAll = (found: Record<string, unknown>, expected: Record<string, unknown>): boolean =>
  Object.entries(expected).every(([name, value]) => found[name] === value);
