// The round of metering: charges every prepaid account that has open meters, at short intervals, so that its balance is
// never far behind. Every replica makes rounds; each account is charged by whichever replica locks it first.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { chargeAccounts } from './charge.ts';
import { NEXT_INSTANT } from './clock.ts';

/**
 * Accounts of one transaction. They stay locked until it commits, which takes some milliseconds, and requests of these
 * accounts wait for that long.
 */
const BATCH = 50;

/**
 * Charges the accounts whose last charge is at least `chargeMs` (config.timing) old by the database's clock. Returns
 * how many were charged. Accounts that another transaction has locked are left to the next round.
 */
export async function chargeDueAccounts(app: App): Promise<number> {
  let charged = 0;
  while (!app.closing.aborted) {
    const ids = await inTransaction(app.db, async (tx) => {
      const { rows } = await sql<{ id: string }>`
        update accounts set activity_at = ${NEXT_INSTANT}
        where id in (
          select id from accounts
          where billing_mode = 'prepaid'
            and id in (select account_id from meters where ended_at = 'infinity' and price_id <> 0)
            and charged_until <= clock_timestamp() - ${app.config.timing.chargeMs}::int * interval '1 millisecond'
          order by charged_until limit ${BATCH} for no key update skip locked)
        returning id`.execute(tx);
      const locked = rows.map((row) => row.id);
      if (locked.length > 0) await chargeAccounts(tx, locked);
      return locked;
    });
    charged += ids.length;
    if (ids.length < BATCH) break;
  }
  return charged;
}
