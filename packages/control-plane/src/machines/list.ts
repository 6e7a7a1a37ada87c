// Lists an account's machines, with filters.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineListQuery } from '@sandbar/contract/machine.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { fetchPage, readPage } from '../paging.ts';
import { type MachineView, selectMachineViews } from './store.ts';

const METADATA_PREFIX = 'metadata.';

/** Returns `[KEY, VALUE]` for every query parameter `metadata.KEY=VALUE`. */
function metadataFilters(query: Record<string, unknown>): [string, string][] {
  return Object.entries(query)
    .filter(([name]) => name.startsWith(METADATA_PREFIX))
    .map(([name, value]) => [name.slice(METADATA_PREFIX.length), String(value)]);
}

/**
 * Returns one page of the account's machines, newest first, and the cursor of the next page. Destroyed machines are
 * listed only when the query asks for that state. Throws `validation_error` for an invalid cursor or more than 16
 * metadata filters.
 */
export async function listMachines(
  app: App,
  accountId: string,
  query: MachineListQuery,
): Promise<{ rows: MachineView[]; cursor: { next_cursor?: string } }> {
  const filters = metadataFilters(query);
  if (filters.length > 16) throw new ServiceError('validation_error', 'At most 16 metadata filters can be combined.');
  const key = ['machines', accountId, query.state, query.name, filters];
  const page = readPage(app.config.secret, query, key);
  let select = selectMachineViews(app.db).where('account_id', '=', accountId);
  select = query.state ? select.where('state', '=', query.state) : select.where('state', '<>', 'destroyed');
  if (query.name !== undefined) select = select.where('name', '=', query.name);
  for (const [name, value] of filters) select = select.where(sql<boolean>`metadata ->> ${name} = ${value}`);
  return fetchPage(app.config.secret, select, page, key);
}
