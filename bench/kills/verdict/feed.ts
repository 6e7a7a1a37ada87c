// Compares the activity feeds with what the clients did: each acknowledged operation must have its entry, and there may
// be no unexpected entry. Only the spend guard may stop machines of its own accord; verdict/billing.ts checks when.
import type { ActivityEntry, ActivityList } from '@sandbar/contract/activity.ts';
import { ask, type ClientContext } from '../client-context.ts';
import { keyOf, type Ledger } from '../ledger.ts';
import { isGuardStop } from './billing.ts';

/**
 * Returns the time of the newest entry, or an empty string. Entries up to that time are older than the run and are not
 * compared.
 */
export async function readNewestTime(context: ClientContext): Promise<string> {
  const list = { method: 'GET', path: '/v1/activity?page_size=1', accepts: [200] } as const;
  return (await ask<ActivityList>(context, list)).body.activity[0]?.created_at ?? '';
}

/**
 * Compares the feeds of all accounts with the ledger, which all clients share. Entries up to `since` are older than the
 * run. Returns a sentence for each difference.
 */
export async function checkFeed(contexts: readonly ClientContext[], ledger: Ledger, since: string): Promise<string[]> {
  const feeds = await Promise.all(contexts.map((context) => readFeed(context, since)));
  const byKey = Map.groupBy(feeds.flat(), keyOf);
  const keys = new Set([...byKey.keys(), ...ledger.expected.keys()]);
  return [...keys].flatMap((key) => (ledger.isDoubtful(key) ? [] : compareEntries(ledger, key, byKey.get(key) ?? [])));
}

async function readFeed(context: ClientContext, since: string): Promise<ActivityEntry[]> {
  const entries: ActivityEntry[] = [];
  for (let cursor = ''; ; ) {
    const path = `/v1/activity?page_size=200${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
    const { body } = await ask<ActivityList>(context, { method: 'GET', path, accepts: [200] });
    const news = body.activity.filter(({ created_at }) => created_at > since);
    entries.push(...news.filter((entry) => context.wallet === undefined || !isGuardStop(entry)));
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
