// Lists directories in pages. The guest agent sorts the entries by the bytes of their paths, so a page begins after the
// last path of the page before, and the cursor is that path. It needs no signature: the caller may read any path
// anyway.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { FILE_BOUNDS, type FileList, type FileListQuery, GuestEntryPage } from '@sandbar/contract/file.ts';
import { decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import type { App } from '../app.ts';
import { badAnswer } from '../guest/answer.ts';
import { callGuest } from '../guest/call.ts';
import { toEntry } from './entry.ts';
import type { FileTarget } from './target.ts';

const BASE64URL = /^[A-Za-z0-9_-]+$/;

/** Returns a page of entries. Throws `validation_error` for an invalid cursor, `not_found`, `conflict` for a file. */
export async function listFiles(
  app: App,
  { caller, machineId, path }: FileTarget,
  { depth = 1, page_size = FILE_BOUNDS.pageMax, cursor }: Pick<FileListQuery, 'depth' | 'page_size' | 'cursor'>,
): Promise<FileList> {
  const after = cursor === undefined || cursor === '' ? {} : { after: readCursor(cursor) };
  const params = { path, depth, limit: page_size, ...after };
  const page = await callGuest(app, caller, machineId, 'files.list', params, GuestEntryPage).catch((error: unknown) => {
    throw after.after !== undefined && isInvalid(error) ? badCursor() : error;
  });
  const { entries, more } = page;
  const last = entries.at(-1);
  if (entries.length > page_size) throw badAnswer('a longer list than was asked for');
  // Otherwise a client would ask for the next page for ever.
  if (more && (last === undefined || last.path === after.after)) throw badAnswer('a list that does not advance');
  return { entries: entries.map(toEntry), next_cursor: more && last ? writeCursor(last.path) : '' };
}

/** The bytes of the path, not its percent-encoded text, because that can be three times as long. */
const writeCursor = (path: string): string => Buffer.from(decodePath(path)).toString('base64url');

/** The path after which the page begins. The guest agent checks that it is below the path of the list. */
function readCursor(cursor: string): string {
  if (!BASE64URL.test(cursor)) throw badCursor();
  return encodePath(Buffer.from(cursor, 'base64url'));
}

const isInvalid = (error: unknown): boolean => error instanceof ServiceError && error.code === 'validation_error';

const badCursor = (): ServiceError =>
  new ServiceError('validation_error', 'cursor must be the next_cursor of the page before, with the same parameters.');
