// Deletes of many rows, a bounded number in each statement: a statement is given up after a few seconds, so one that
// deletes a year's rows at once would fail every time.
import { type RawBuilder, sql } from 'kysely';
import type { Db } from './database.ts';
import type { Database } from './tables.ts';

/** Far less than a second of work, also where each row takes others with it. */
export const BATCH_ROWS = 1000;

/**
 * Deletes the rows of `table` for which `condition` holds, until none is left or `closing` is aborted. Rows that another
 * transaction holds are left for the next time, so two replicas that do the same do not wait for each other.
 */
export async function deleteInBatches(
  db: Db,
  table: keyof Database,
  condition: RawBuilder<unknown>,
  closing?: AbortSignal,
): Promise<void> {
  while (!closing?.aborted) {
    // The row lock keeps a row at its ctid (its place in the table) until the delete of the same statement.
    const { numAffectedRows } = await sql`
      delete from ${sql.table(table)} where ctid = any(array(
        select ctid from ${sql.table(table)} where ${condition} limit ${sql.lit(BATCH_ROWS)} for update skip locked
      ))`.execute(db);
    if (Number(numAffectedRows ?? 0) < BATCH_ROWS) return;
  }
}
