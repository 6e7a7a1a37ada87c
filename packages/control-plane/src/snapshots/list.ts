// Lists the snapshots of an account or of one machine, with filters.
import type { SnapshotListQuery } from '@sandbar/contract/snapshot.ts';
import type { App } from '../app.ts';
import { findMachine } from '../machines/store.ts';
import { fetchPage, readPage } from '../paging.ts';
import { isVisible, type VisibleSnapshot } from './store.ts';

type Listed = { rows: VisibleSnapshot[]; cursor: { next_cursor?: string } };

/**
 * Returns one page of the account's snapshots, newest first, and the cursor of the next page. Throws `validation_error`
 * for an invalid cursor.
 */
export function listSnapshots(app: App, accountId: string, query: SnapshotListQuery): Promise<Listed> {
  return fetchList(app, accountId, query);
}

/**
 * Returns one page of a machine's snapshots, newest first. The list of a destroyed machine is empty. Throws `not_found`
 * for the machine and `validation_error` for an invalid cursor.
 */
export async function listSnapshotsOf(
  app: App,
  accountId: string,
  machineId: string,
  query: SnapshotListQuery,
): Promise<Listed> {
  const machine = await findMachine(app, accountId, machineId);
  return fetchList(app, accountId, query, machine.id);
}

async function fetchList(
  app: App,
  accountId: string,
  query: SnapshotListQuery,
  machineId: string | null = null,
): Promise<Listed> {
  const { secret } = app.config;
  const key = ['snapshots', accountId, machineId, query.kind, query.state];
  const page = readPage(secret, query, key);
  let select = app.db.selectFrom('snapshots').selectAll().where('account_id', '=', accountId).where(isVisible);
  if (machineId !== null) select = select.where('machine_id', '=', machineId);
  if (query.kind) select = select.where('kind', '=', query.kind);
  if (query.state) select = select.where('state', '=', query.state);
  return fetchPage(secret, select.$narrowType<{ state: VisibleSnapshot['state'] }>(), page, key);
}
