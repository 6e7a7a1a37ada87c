// Deletes many rows in batches. A statement is cancelled after a few seconds, so a single statement that deletes a
// year's rows would fail every time.
import { type RawBuilder, sql } from 'kysely';
import type { Db } from './database.ts';
import type { Database } from './tables.ts';

/**
 * Rows deleted by one statement. This takes far less than a second, even if each delete cascades to rows of other
 * tables.
 */
export const BATCH_ROWS = 1000;

/**
 * Deletes all rows of `table` that match `condition`, or stops early when `closing` is aborted. Rows that another
 * transaction has locked may be left for the next call, so that two replicas do not wait for each other.
 */
export async function deleteInBatches(
  db: Db,
  table: keyof Database,
  condition: RawBuilder<unknown>,
  closing?: AbortSignal,
): Promise<void> {
  while (!closing?.aborted) {
    // `for update` guarantees that a row stays at its ctid (its physical position in the table) until this statement
    // deletes it.
    const { numAffectedRows } = await sql`
      delete from ${sql.table(table)} where ctid = any(array(
        select ctid from ${sql.table(table)} where ${condition} limit ${sql.lit(BATCH_ROWS)} for update skip locked
      ))`.execute(db);
    if (Number(numAffectedRows ?? 0) < BATCH_ROWS) return;
  }
}
