// Statements of the hot path: written once as text and prepared on each connection, so that neither the query builder nor
// PostgreSQL's planner works on every request. Everything else is built with Kysely.
import { CompiledQuery } from 'kysely';
import type { Db, Tx } from './database.ts';

const names = new Map<string, string>();

/** A statement by its name (unique) and text; the function runs it with the values of $1, $2, … */
export function prepare<Row>(name: string, text: string): (db: Db | Tx, values: readonly unknown[]) => Promise<Row[]> {
  names.set(text, name);
  return async (db, values) => (await db.executeQuery<Row>(CompiledQuery.raw(text, [...values]))).rows;
}

/** The name under which a text is prepared; undefined for all others. */
export const preparedName = (text: unknown): string | undefined =>
  typeof text === 'string' ? names.get(text) : undefined;
