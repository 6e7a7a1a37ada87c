// The rules of RFC 9110 for conditional and range requests, as far as files support them: If-Match, If-None-Match,
// If-Range and a single byte range.
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';

/** A requested part of a file, in bytes. `end` is inclusive. */
export type ByteRange = { start: number; end?: number } | { last: number };

/**
 * Returns the part that the header Range asks for. Returns undefined, which means the whole file, when the header is
 * missing, asks for more than one range or is malformed. RFC 9110 says to ignore a malformed Range.
 */
export function parseRange(header: string | undefined): ByteRange | undefined {
  const [, first, last] = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(header ?? '') ?? [];
  if (first === undefined || last === undefined || first + last === '') return undefined;
  if (first === '') return { last: toCount(last) };
  const start = toCount(first);
  if (last === '') return { start };
  const end = toCount(last);
  return end < start ? undefined : { start, end };
}

/** Numbers beyond 2^53 - 1 count as this number: no file is longer. */
const toCount = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER);

/** Whether If-None-Match names this ETag, or is `*`. The comparison is the weak one. */
export function isNoneMatch(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header.trim() === '*' || header.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag);
}

/**
 * Whether If-Range allows an answer with only a part of the file: it does when the header is missing or is exactly this
 * ETag. A date never allows it, because a file can change twice in a second.
 */
export function allowsRange(ifRange: string | undefined, etag: string): boolean {
  return ifRange === undefined || ifRange.trim() === etag;
}

/** What an upload requires of the file that it replaces. */
export type WriteCondition = {
  /** The file must not exist. */
  exclusive: boolean;
  /** The ETag that the file must have, without quotes; undefined for any. */
  ifEtag: string | undefined;
};

/** Throws `validation_error` for a condition that an upload does not support. */
export function writeCondition(headers: IncomingHttpHeaders): WriteCondition {
  const noneMatch = headers['if-none-match'];
  const match = headers['if-match'];
  if (noneMatch !== undefined && noneMatch.trim() !== '*') {
    throw new ServiceError('validation_error', 'If-None-Match of an upload must be *, which refuses to overwrite.');
  }
  if (match === undefined) return { exclusive: noneMatch !== undefined, ifEtag: undefined };
  const ifEtag = /^\s*"([\x21\x23-\x7e]{1,126})"\s*$/.exec(match)?.[1];
  if (ifEtag === undefined || noneMatch !== undefined) {
    throw new ServiceError('validation_error', 'If-Match of an upload must be one ETag, without If-None-Match.');
  }
  return { exclusive: false, ifEtag };
}
