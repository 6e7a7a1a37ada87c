// SQL of the wallet. It is a ledger to which rows are only added; the balance is their sum.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { Db, Tx } from '../db/database.ts';

export type Credit = {
  accountId: string;
  kind: 'top-up' | 'bonus';
  /** Micro-euro; more than zero. */
  amountMicros: number;
  note: string;
};

/** The balance of an account in micro-euro; 0 when its ledger is empty. */
export async function balanceOf(db: Db | Tx, accountId: string): Promise<number> {
  const row = await db
    .selectFrom('ledger')
    // PostgreSQL's sum of bigint is a numeric, which the driver returns as text; so it is cast back.
    .select(sql<number>`coalesce(sum(amount_micros), 0)::bigint`.as('balance'))
    .where('account_id', '=', accountId)
    .executeTakeFirstOrThrow();
  return row.balance;
}

/**
 * Adds money to a wallet. The first top-up moves the account from tier free to payg; a bonus does not change the tier.
 * Throws `validation_error` for an amount that is not above zero.
 */
export async function addCredit(tx: Tx, credit: Credit): Promise<void> {
  const { accountId, kind, amountMicros, note } = credit;
  if (!Number.isSafeInteger(amountMicros) || amountMicros <= 0) {
    throw new ServiceError('validation_error', 'A credit must be more than 0 EUR.');
  }
  if (kind === 'top-up') await leaveFreeTier(tx, accountId);
  await tx
    .insertInto('ledger')
    .values({ id: uuidv7(), account_id: accountId, kind, amount_micros: amountMicros, note })
    .execute();
}

/** Only the first top-up changes the tier, so a tier that the operator sets later is kept. */
async function leaveFreeTier(tx: Tx, accountId: string): Promise<void> {
  await tx
    .updateTable('accounts')
    .set({ tier: 'payg', updated_at: sql<Date>`now()` })
    .where('id', '=', accountId)
    .where('tier', '=', 'free')
    .where(({ not, exists, selectFrom }) =>
      not(exists(selectFrom('ledger').select('id').where('account_id', '=', accountId).where('kind', '=', 'top-up'))),
    )
    .execute();
}
