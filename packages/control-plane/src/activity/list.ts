// Reads the feed, newest first, with filters that can be combined. A page begins after the last entry of the previous
// page (keyset paging), so a late page costs no more than an early one.
import {
  ACTIVITY_PAGE,
  type ActivityCategory,
  type ActivityEntry,
  type ActivityQuery,
} from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { fetchPage, readPage } from '../paging.ts';
import { type Range, readRange } from './range.ts';
import { ACTIVITY_SEARCH_TEXT, readSearch, type Search } from './search.ts';

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
  const search = q === '' ? undefined : readSearch(q);
  if (q !== '' && search === undefined) return { activity: [], next_cursor: '' };
  const select = selectFeed(app.db, accountId, { ...range, machineId, category, search });
  const { rows, cursor } = await fetchPage(app.config.secret, select, page, key);
  return { activity: rows.map(toEntry), next_cursor: cursor.next_cursor ?? '' };
}

export type FeedFilter = Partial<Range> & {
  machineId?: string | undefined;
  category?: ActivityCategory | 'all';
  search?: Search | undefined;
};

/** The query of the feed, before order and paging are added. */
export function selectFeed(db: Db, accountId: string, { machineId, category = 'all', search, from, to }: FeedFilter) {
  let select = db
    .selectFrom('activity')
    .select(['id', 'created_at', 'machine_id', 'action', 'actor', 'metadata'])
    .where('account_id', '=', accountId);
  if (machineId !== undefined) select = select.where('machine_id', '=', machineId);
  if (category !== 'all') select = select.where('category', '=', category);
  if (from) select = select.where('created_at', '>=', from);
  if (to) select = select.where('created_at', '<=', to);
  if (!search) return select;
  return select
    .where(sql<boolean>`${ACTIVITY_SEARCH_TEXT} like ${search.like}`)
    .where(sql<boolean>`strpos(${ACTIVITY_SEARCH_TEXT}, ${search.term}) > 0`);
}

type Row = Awaited<ReturnType<ReturnType<typeof selectFeed>['execute']>>[number];

const toEntry = (row: Row): ActivityEntry => ({
  ...(row.machine_id === null ? {} : { machine_id: row.machine_id }),
  action: row.action,
  actor: row.actor,
  metadata: row.metadata,
  created_at: row.created_at.toISOString(),
});
