// Keyset paging. A cursor is a position (created_at, id), signed together with the list it came from: the account, the
// route and the filters. Anywhere else, or changed, it is malformed.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';

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

/** How many rows to ask for: one more than the page, to know whether there is a next one. */
export const rowsToFetch = (page: PageRequest): number | undefined =>
  page.pageSize === undefined ? undefined : page.pageSize + 1;

/** Cuts the rows fetched to the page and makes its `next_cursor` (absent when the request did not page). */
export function cutPage<T extends Positioned>(
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
