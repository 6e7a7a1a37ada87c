// The rules of RFC 9110 for conditional and range requests, as far as files have them: If-None-Match, If-Range and a
// single byte range.

/** A requested part of a file, in bytes. `end` is inclusive. */
export type ByteRange = { start: number; end?: number } | { last: number };

/**
 * The part that the header Range asks for. Undefined, which means the whole file, without the header, for more than one
 * range, and for a header that is malformed, which RFC 9110 wants to be ignored.
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
 * Whether If-Range allows the answer to have a part of the file: without the header, or if it is exactly this ETag. A date
 * never allows it, because a file can change twice in a second.
 */
export function allowsRange(ifRange: string | undefined, etag: string): boolean {
  return ifRange === undefined || ifRange.trim() === etag;
}
