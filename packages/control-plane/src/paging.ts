// Keyset paging. A cursor is a position (created_at, id) bound to the list it came from: the account, the route and the
// filters; anywhere else it is malformed.
import { createHash } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';

export type Position = { createdAt: Date; id: string };
export type PageRequest = { pageSize: number | undefined; after: Position | undefined };
type Positioned = { created_at: Date; id: string };

const CURSOR = /^(\d{1,15})\.([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\.([A-Za-z0-9_-]{11})$/;

/** What a list is of: two lists share cursors only when these are equal. */
export type ListKey = readonly unknown[];

/** Reads `page_size` and `cursor`. Throws `validation_error` for a malformed or foreign cursor. */
export function readPage(query: { page_size?: number; cursor?: string }, list: ListKey): PageRequest {
  if (query.cursor === undefined) return { pageSize: query.page_size, after: undefined };
  const [, time, id, binding] = CURSOR.exec(Buffer.from(query.cursor, 'base64url').toString('latin1')) ?? [];
  if (time === undefined || id === undefined || binding !== bindingOf(list)) {
    throw new ServiceError(
      'validation_error',
      'cursor must be the next_cursor of the page before, with the same filters.',
    );
  }
  return { pageSize: query.page_size, after: { createdAt: new Date(Number(time)), id } };
}

/** How many rows to ask for: one more than the page, to know whether there is a next one. */
export const rowsToFetch = (page: PageRequest): number | undefined =>
  page.pageSize === undefined ? undefined : page.pageSize + 1;

/** Cuts the rows fetched to the page and makes its `next_cursor` (absent when the request did not page). */
export function cutPage<T extends Positioned>(
  rows: T[],
  page: PageRequest,
  list: ListKey,
): { rows: T[]; cursor: { next_cursor?: string } } {
  if (page.pageSize === undefined) return { rows, cursor: page.after ? { next_cursor: '' } : {} };
  const kept = rows.slice(0, page.pageSize);
  const last = rows.length > page.pageSize ? kept.at(-1) : undefined;
  return { rows: kept, cursor: { next_cursor: last ? writeCursor(last, list) : '' } };
}

function writeCursor(row: Positioned, list: ListKey): string {
  return Buffer.from(`${row.created_at.getTime()}.${row.id}.${bindingOf(list)}`, 'latin1').toString('base64url');
}

const bindingOf = (list: ListKey): string =>
  createHash('sha256').update(JSON.stringify(list)).digest('base64url').slice(0, 11);
