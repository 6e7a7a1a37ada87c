// The list of an account's volumes with its filters.
import type { VolumeListQuery } from '@sandbar/contract/volume.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { cutPage, readPage, rowsToFetch } from '../paging.ts';

/** Newest first. Throws `validation_error` for a bad cursor. */
export async function listVolumes(
  app: App,
  accountId: string,
  query: VolumeListQuery,
): Promise<{ rows: VolumeRow[]; cursor: { next_cursor?: string } }> {
  const { secret } = app.config;
  const key = ['volumes', accountId, query.kind, query.state];
  const page = readPage(secret, query, key);
  let select = app.db
    .selectFrom('volumes')
    .selectAll()
    .where('account_id', '=', accountId)
    .where('deleting', '=', false)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc');
  if (query.kind) select = select.where('kind', '=', query.kind);
  if (query.state) select = select.where('state', '=', query.state);
  const { after } = page;
  if (after) select = select.where(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id}::uuid)`);
  const limit = rowsToFetch(page);
  if (limit !== undefined) select = select.limit(limit);
  return cutPage(secret, await select.execute(), page, key);
}
