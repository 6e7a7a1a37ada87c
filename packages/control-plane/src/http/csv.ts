// Answers with CSV instead of JSON, for clients whose Accept header prefers it.
import accepts from 'accepts';
import { stringify } from 'csv-stringify/sync';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** Whether the client prefers CSV to JSON. JSON is sent when it accepts both equally, or has no preference. */
export const wantsCsv = (request: FastifyRequest): boolean =>
  accepts(request.raw).types(['application/json', 'text/csv']) === 'text/csv';

const NEGATIVE_NUMBER = /^-\d+(\.\d+)?$/;

/**
 * Writes rows as CSV with a header row. An apostrophe is put before a text that a spreadsheet would run as a formula,
 * such as `=1+1`. A negative number is not a formula and stays as it is.
 */
export const toCsv = (columns: readonly string[], rows: readonly object[]): string =>
  stringify([...rows], {
    header: true,
    columns: [...columns],
    escape_formulas: true,
    cast: { string: (value) => (NEGATIVE_NUMBER.test(value) ? { value, escape_formulas: false } : value) },
  });

/** Sends CSV. */
export function sendCsv(reply: FastifyReply, text: string): FastifyReply {
  return reply.type('text/csv; charset=utf-8').send(text);
}
