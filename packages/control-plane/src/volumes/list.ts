// Lists an account's volumes, with filters.
import type { VolumeListQuery } from '@sandbar/contract/volume.ts';
import type { App } from '../app.ts';
import { fetchPage, readPage } from '../paging.ts';
import { isVisible, type VisibleVolume } from './store.ts';

/**
 * Returns one page of the account's volumes, newest first, and the cursor of the next page. Throws `validation_error`
 * for an invalid cursor.
 */
export async function listVolumes(
  app: App,
  accountId: string,
  query: VolumeListQuery,
): Promise<{ rows: VisibleVolume[]; cursor: { next_cursor?: string } }> {
  const { secret } = app.config;
  const key = ['volumes', accountId, query.kind, query.state];
  const page = readPage(secret, query, key);
  let select = app.db.selectFrom('volumes').selectAll().where('account_id', '=', accountId).where(isVisible);
  if (query.kind) select = select.where('kind', '=', query.kind);
  if (query.state) select = select.where('state', '=', query.state);
  return fetchPage(secret, select.$narrowType<{ state: VisibleVolume['state'] }>(), page, key);
}
