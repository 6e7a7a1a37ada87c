// Reading the feed: filters that combine, newest first, by keyset. Each page costs the same wherever it is.
import type { ActivityCategory, ActivityEntry, ActivityQuery } from '@sandbar/contract/activity.ts';
import { ACTIVITY_PAGE } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { cutPage, readPage, rowsToFetch } from '../paging.ts';
import { readRange } from './range.ts';
import { ACTIVITY_SEARCH_TEXT, searchPattern } from './search.ts';

export type ActivityFilter = ActivityQuery & { machineId?: string };

/** A page of an account's feed. Throws `validation_error` for a bad cursor, or `to` before `from`. */
export async function listActivity(
  app: App,
  accountId: string,
  { machineId, ...query }: ActivityFilter,
): Promise<{ activity: ActivityEntry[]; next_cursor: string }> {
  const { category = 'all', q = '' } = query;
  const pageSize = Math.min(query.page_size ?? ACTIVITY_PAGE.default, ACTIVITY_PAGE.max);
  const range = readRange(query);
  const key = ['activity', accountId, machineId, category, q, query.from, query.to];
  const page = readPage(app.config.secret, { ...query, page_size: pageSize }, key);
  const pattern = q === '' ? undefined : searchPattern(q);
  if (q !== '' && pattern === undefined) return { activity: [], next_cursor: '' };

  let select = selectFeed(app.db, accountId).limit(rowsToFetch(page) ?? pageSize + 1);
  if (machineId !== undefined) select = select.where('machine_id', '=', machineId);
  if (category !== 'all') select = select.where('category', '=', category satisfies ActivityCategory);
  if (range.from) select = select.where('created_at', '>=', range.from);
  if (range.to) select = select.where('created_at', '<=', range.to);
  if (pattern !== undefined) select = select.where(sql<boolean>`${ACTIVITY_SEARCH_TEXT} like ${pattern}`);
  const { after } = page;
  if (after) {
    // The first condition says the same again in a form that rules out whole months.
    select = select
      .where('created_at', '<=', after.createdAt)
      .where(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id}::uuid)`);
  }
  const { rows, cursor } = cutPage(app.config.secret, await select.execute(), page, key);
  return { activity: rows.map(toEntry), next_cursor: cursor.next_cursor ?? '' };
}

function selectFeed(db: Db, accountId: string) {
  return db
    .selectFrom('activity')
    .select(['id', 'created_at', 'machine_id', 'action', 'actor', 'metadata'])
    .where('account_id', '=', accountId)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc');
}

type Row = Awaited<ReturnType<ReturnType<typeof selectFeed>['execute']>>[number];

const toEntry = (row: Row): ActivityEntry => ({
  ...(row.machine_id === null ? {} : { machine_id: row.machine_id }),
  action: row.action,
  actor: row.actor,
  metadata: row.metadata,
  created_at: row.created_at.toISOString(),
});
