// The round of metering: charges every prepaid account that has open meters, at short intervals, so that its balance is
// never far behind. Every replica makes rounds; each account is charged by whichever replica locks it first.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { isDatabaseAway } from '../db/failures.ts';
import { commitUnsynced, inTransaction } from '../db/transaction.ts';
import { chargeAccounts } from './charge.ts';
import { NEXT_INSTANT } from './clock.ts';

/**
 * How many accounts one transaction charges. They stay locked until it commits, which takes some milliseconds. Requests
 * of these accounts wait for that long.
 */
const BATCH = 200;

/**
 * Charges the accounts whose last charge is at least `chargeMs` (config.timing) old by the database's clock. Returns
 * how many were charged. Accounts that another transaction has locked are left to the next round.
 */
export async function chargeDueAccounts(app: App): Promise<number> {
  const { db, config, closing } = app;
  const { rows } = await sql<{ id: string }>`
    select id from accounts
    where billing_mode = 'prepaid' and ${isDue(config.timing.chargeMs)}
      and id in (select account_id from meters where ended_at = 'infinity' and price_id <> 0)
    order by charged_until`.execute(db);
  let charged = 0;
  for (let start = 0; start < rows.length && !closing.aborted; start += BATCH) {
    const ids = rows.slice(start, start + BATCH).map((row) => row.id);
    charged += await chargeSome(app, ids);
  }
  return charged;
}

/**
 * Charges the accounts in one transaction. If that fails, charges each of them in a transaction of its own, so that one
 * account that cannot be charged delays no other. Returns how many were charged. Throws when the database is away.
 */
async function chargeSome(app: App, accountIds: readonly string[]): Promise<number> {
  const { db, config, log } = app;
  try {
    return await inTransaction(db, (tx) => chargeBatch(tx, accountIds, config.timing.chargeMs));
  } catch (err) {
    const [accountId, ...others] = accountIds;
    if (isDatabaseAway(err) || accountId === undefined) throw err;
    if (others.length === 0) {
      log.error({ err, account_id: accountId }, 'an account could not be charged');
      return 0;
    }
    let charged = 0;
    for (const id of accountIds) charged += await chargeSome(app, [id]);
    return charged;
  }
}

/** Charges those of the accounts that are still due and that no other transaction has locked. Returns how many. */
async function chargeBatch(tx: Tx, accountIds: readonly string[], chargeMs: number): Promise<number> {
  const { rows } = await sql<{ id: string }>`
    update accounts set activity_at = ${NEXT_INSTANT}
    where id in (
      select id from accounts where id = any(${accountIds}::uuid[]) and ${isDue(chargeMs)}
      for no key update skip locked)
    returning id`.execute(tx);
  const locked = rows.map((row) => row.id);
  if (locked.length > 0) {
    // If PostgreSQL crashes before it has written this commit to disk, the charge is lost, and the next round repeats
    // it.
    await Promise.all([chargeAccounts(tx, locked), commitUnsynced(tx)]);
  }
  return locked.length;
}

/** SQL condition: the account's last charge is at least this old. */
const isDue = (chargeMs: number) =>
  sql<boolean>`charged_until <= clock_timestamp() - ${chargeMs}::int * interval '1 millisecond'`;
