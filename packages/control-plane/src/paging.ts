// Keyset paging: a page starts after the last row of the previous page. A cursor contains that row's position
// (created_at, id) and a signature. The signature covers the list too (account, route and filters), so a cursor is
// invalid for any other list or after any change.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type SelectQueryBuilder, sql } from 'kysely';
import type { Database } from './db/tables.ts';

export type Position = { createdAt: Date; id: string };
export type PageRequest = { pageSize: number | undefined; after: Position | undefined };
type Positioned = { created_at: Date; id: string };

const POSITION = /^(\d{1,15})\.([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$/;
/** Characters of the signature in base64url: about 128 bits of the HMAC. */
const SIGNATURE_LENGTH = 22;

/**
 * Identifies a list: the kind of its rows, the account and the filters. A cursor is valid only for a list with an equal
 * key.
 */
export type ListKey = readonly unknown[];

/**
 * Reads `page_size` and `cursor` from a query. `list` identifies the requested list. Throws `validation_error` for an
 * invalid cursor or a cursor of another list.
 */
export function readPage(secret: string, query: { page_size?: number; cursor?: string }, list: ListKey): PageRequest {
  if (query.cursor === undefined) return { pageSize: query.page_size, after: undefined };
  const text = Buffer.from(query.cursor, 'base64url').toString('latin1');
  const position = text.slice(0, -SIGNATURE_LENGTH);
  const [, time, id] = POSITION.exec(position) ?? [];
  if (time === undefined || id === undefined || !isSigned(secret, position, text.slice(-SIGNATURE_LENGTH), list)) {
    throw new ServiceError(
      'validation_error',
      'cursor must be the next_cursor of the page before, with the same filters.',
    );
  }
  return { pageSize: query.page_size, after: { createdAt: new Date(Number(time)), id } };
}

/**
 * Runs a list's query for one page. Returns the rows and `next_cursor`: empty on the last page, and absent if the
 * request did not use paging.
 */
export async function fetchPage<TB extends keyof Database, T extends Positioned>(
  secret: string,
  query: SelectQueryBuilder<Database, TB, T>,
  page: PageRequest,
  list: ListKey,
): Promise<{ rows: T[]; cursor: { next_cursor?: string } }> {
  return cutPage(secret, await pageOf(query, page).execute(), page, list);
}

/**
 * Returns the query of one page, newest first. It reads one row more than the page has, which shows whether there is a
 * next page.
 */
export function pageOf<TB extends keyof Database, T>(
  query: SelectQueryBuilder<Database, TB, T>,
  { after, pageSize }: PageRequest,
): SelectQueryBuilder<Database, TB, T> {
  let select = query.orderBy(sql`created_at`, 'desc').orderBy(sql`id`, 'desc');
  if (after) {
    select = select
      // The next condition implies this one. It is added because PostgreSQL can use it to skip whole partitions.
      .where(sql<boolean>`created_at <= ${after.createdAt}`)
      .where(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id}::uuid)`);
  }
  return pageSize === undefined ? select : select.limit(pageSize + 1);
}

function cutPage<T extends Positioned>(
  secret: string,
  rows: T[],
  page: PageRequest,
  list: ListKey,
): { rows: T[]; cursor: { next_cursor?: string } } {
  if (page.pageSize === undefined) return { rows, cursor: page.after ? { next_cursor: '' } : {} };
  const kept = rows.slice(0, page.pageSize);
  const last = rows.length > page.pageSize ? kept.at(-1) : undefined;
  return { rows: kept, cursor: { next_cursor: last ? writeCursor(secret, last, list) : '' } };
}

function writeCursor(secret: string, row: Positioned, list: ListKey): string {
  const position = `${row.created_at.getTime()}.${row.id}`;
  return Buffer.from(position + signatureOf(secret, position, list), 'latin1').toString('base64url');
}

function isSigned(secret: string, position: string, signature: string, list: ListKey): boolean {
  const expected = Buffer.from(signatureOf(secret, position, list));
  const given = Buffer.from(signature);
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/**
 * Returns the signature of a position. The word `cursor` in the signed text makes sure that a signature made with the
 * same secret for another purpose is not valid here.
 */
const signatureOf = (secret: string, position: string, list: ListKey): string =>
  createHmac('sha256', secret)
    .update(JSON.stringify(['cursor', position, list]))
    .digest('base64url')
    .slice(0, SIGNATURE_LENGTH);
