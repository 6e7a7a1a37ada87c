// Reads `from` and `to` of the feed as times that the database can represent.
import { ServiceError } from '@sandbar/contract/errors.ts';

/** The years 1 to 9999, which JavaScript and PostgreSQL write in the same way. No entry is outside of them. */
const FIRST = Date.UTC(1, 0, 1);
const LAST = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

export type Range = { from: Date | undefined; to: Date | undefined };

/** Reads both bounds (RFC 3339, inclusive). Throws `validation_error`. */
export function readRange(query: { from?: string; to?: string }): Range {
  const from = readTime('from', query.from);
  const to = readTime('to', query.to);
  if (from && to && to < from) throw new ServiceError('validation_error', 'to must not be before from.');
  return { from, to };
}

function readTime(name: string, text: string | undefined): Date | undefined {
  if (text === undefined) return undefined;
  // RFC 3339 allows a leap second (:60), but Date does not. Read it as the last millisecond of its minute.
  const time = Date.parse(text.replace(/:60(\.\d+)?/, ':59.999').toUpperCase());
  if (Number.isNaN(time)) throw new ServiceError('validation_error', `${name} must be an RFC 3339 time.`);
  return new Date(Math.min(Math.max(time, FIRST), LAST));
}
