// Applies new prices to resources that are in use. Each of an account's open meters is closed and opened again at the
// new price, all at one instant of the account's clock. So every meter has only one price.
import type { BillingMode } from '@sandbar/contract/account.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { chargeAccounts } from './charge.ts';
import { NEXT_INSTANT } from './clock.ts';
import { PRICE_IN_FORCE } from './prices.ts';

const BATCH = 50;

/**
 * Moves all open meters with an older price list to the list in force, and charges their accounts up to that moment.
 * Returns how many accounts were moved. Several replicas may run it at once.
 */
export async function repriceAccounts(app: App): Promise<number> {
  let moved = 0;
  while (!app.closing.aborted) {
    const count = await inTransaction(app.db, async (tx) => {
      const { rows } = await sql<{ id: string }>`
        select id from accounts
        where id in (
          select account_id from meters
          where ended_at = 'infinity' and price_id <> 0 and price_id < (select max(id) from prices))
        order by id limit ${BATCH} for no key update`.execute(tx);
      const ids = rows.map((row) => row.id);
      if (ids.length > 0) await reopenMeters(tx, ids);
      return ids.length;
    });
    moved += count;
    if (count === 0) break;
  }
  return moved;
}

/** Sets the billing mode of an account. Use until now is charged by the old mode, later use by the new mode. */
export async function changeBillingMode(tx: Tx, accountId: string, mode: BillingMode): Promise<void> {
  // Move the clock and charge first, while the old mode is in force.
  await tx.updateTable('accounts').set({ activity_at: NEXT_INSTANT }).where('id', '=', accountId).execute();
  await chargeAccounts(tx, [accountId]);
  await tx
    .updateTable('accounts')
    .set({ billing_mode: mode, updated_at: sql<Date>`now()` })
    .where('id', '=', accountId)
    .execute();
  await replaceOpenMeters(tx, [accountId]);
  // Meters of an unmetered account are free, so an account that turns to prepaid owes nothing for them. The time
  // without money, which counts toward the reclaimer, begins now.
  await tx
    .updateTable('accounts')
    .set({
      charged_until: sql<Date>`activity_at`,
      empty_since: sql<Date | null>`case when balance_micros > 0 then null else activity_at end`,
      notice: null,
    })
    .where('id', '=', accountId)
    .execute();
}

async function reopenMeters(tx: Tx, accountIds: readonly string[]): Promise<void> {
  await sql`update accounts set activity_at = ${NEXT_INSTANT} where id = any(${accountIds}::uuid[])`.execute(tx);
  await replaceOpenMeters(tx, accountIds);
  await chargeAccounts(tx, accountIds);
}

/** Closes open meters whose price is not in force, and opens equal meters at the price in force, at `activity_at`. */
async function replaceOpenMeters(tx: Tx, accountIds: readonly string[]): Promise<void> {
  await sql`
    update meters set ended_at = accounts.activity_at from accounts
    where accounts.id = any(${accountIds}::uuid[]) and meters.account_id = accounts.id
      and meters.ended_at = 'infinity' and meters.price_id <> ${PRICE_IN_FORCE}`.execute(tx);
  // No other meter of the account ends at this instant, because an instant occurs once.
  await sql`
    insert into meters (account_id, resource_kind, resource_id, vcpus, memory_mb, storage_gb, snapshot_mb, metadata,
      price_id, started_at)
    select meters.account_id, resource_kind, resource_id, vcpus, memory_mb, storage_gb, snapshot_mb, metadata,
      ${PRICE_IN_FORCE}, accounts.activity_at
    from meters join accounts on accounts.id = meters.account_id
    where meters.account_id = any(${accountIds}::uuid[]) and meters.ended_at = accounts.activity_at`.execute(tx);
}
