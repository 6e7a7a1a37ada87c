// SQL of the price lists. A list is never changed: a new one is added, and the newest is in force. So every meter can
// name the list that it was opened with.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type Selectable, sql } from 'kysely';
import type { PriceTable } from '../db/billing-tables.ts';
import type { Db, Tx } from '../db/database.ts';

export type PriceRow = Selectable<PriceTable>;
/** Micro-euro for one vCPU, or one GiB of memory, of disk or of a stored snapshot, for an hour. */
export type PriceList = Omit<PriceRow, 'id' | 'created_at'>;

/** The highest price: 100 EUR for a unit and hour. The table has the same limit. */
export const PRICE_MAX_MICROS = 100_000_000;

/** SQL: the id of the price list that is in force for an account. Everything is free for an unmetered account. */
export const PRICE_IN_FORCE = sql<number>`(case accounts.billing_mode when 'prepaid'
  then (select max(id) from prices) else 0 end)`;

/** The price list that is in force for prepaid accounts. */
export function currentPrices(db: Db | Tx): Promise<PriceRow> {
  return db.selectFrom('prices').selectAll().orderBy('id', 'desc').limit(1).executeTakeFirstOrThrow();
}

/**
 * Puts a new price list in force and returns its id. Meters that are open keep their prices until `repriceAccounts`.
 * Throws `validation_error` for a price that is negative, fractional or too high.
 */
export async function setPrices(tx: Tx, list: PriceList): Promise<number> {
  for (const [name, micros] of Object.entries(list)) {
    if (Number.isSafeInteger(micros) && micros >= 0 && micros <= PRICE_MAX_MICROS) continue;
    throw new ServiceError('validation_error', `${name} must be a whole number from 0 to ${PRICE_MAX_MICROS}.`);
  }
  const { id } = await tx.insertInto('prices').values(list).returning('id').executeTakeFirstOrThrow();
  return id;
}
