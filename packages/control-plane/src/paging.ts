// Keyset paging. A cursor is a position (created_at, id), signed together with the list it came from: the account, the
// route and the filters. Anywhere else, or changed, it is malformed.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type SelectQueryBuilder, sql } from 'kysely';
import type { Database } from './db/tables.ts';

export type Position = { createdAt: Date; id: string };
export type PageRequest = { pageSize: number | undefined; after: Position | undefined };
type Positioned = { created_at: Date; id: string };

const POSITION = /^(\d{1,15})\.([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$/;
/** 128 bits of the HMAC. */
const SIGNATURE_LENGTH = 22;

/** What a list is of: two lists share cursors only when these are equal. */
export type ListKey = readonly unknown[];

/** Reads `page_size` and `cursor`. Throws `validation_error` for a malformed or foreign cursor. */
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

/** Runs a list's query for one page, and makes its `next_cursor` (absent when the request did not page). */
export async function fetchPage<TB extends keyof Database, T extends Positioned>(
  secret: string,
  query: SelectQueryBuilder<Database, TB, T>,
  page: PageRequest,
  list: ListKey,
): Promise<{ rows: T[]; cursor: { next_cursor?: string } }> {
  return cutPage(secret, await pageOf(query, page).execute(), page, list);
}

/** The query newest first from the page's position on, and one row more, which says whether there is a next page. */
export function pageOf<TB extends keyof Database, T>(
  query: SelectQueryBuilder<Database, TB, T>,
  { after, pageSize }: PageRequest,
): SelectQueryBuilder<Database, TB, T> {
  let select = query.orderBy(sql`created_at`, 'desc').orderBy(sql`id`, 'desc');
  if (after) {
    select = select
      // Says what the next line says, in a form that rules out whole partitions.
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

/** `cursor` sets this use of the secret apart from every other. */
const signatureOf = (secret: string, position: string, list: ListKey): string =>
  createHmac('sha256', secret)
    .update(JSON.stringify(['cursor', position, list]))
    .digest('base64url')
    .slice(0, SIGNATURE_LENGTH);
