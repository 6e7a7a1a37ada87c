// Changes whether an account pays for its use.
import type { BillingMode } from '@sandbar/contract/account.ts';
import { sql } from 'kysely';
import { changeBillingMode } from '../billing/reprice.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';

/**
 * Puts a billing mode in force from now on. The time that counts toward the reclaimer begins now for a wallet that is
 * empty when its account becomes prepaid, because until now nothing had to be paid.
 */
export async function setBillingMode(
  tx: Tx,
  { id, billing_mode }: Pick<AccountRow, 'id' | 'billing_mode'>,
  mode: BillingMode,
): Promise<void> {
  if (mode === billing_mode) return;
  await changeBillingMode(tx, id, mode);
  await tx
    .updateTable('accounts')
    .set({
      empty_since: sql<Date | null>`case when balance_micros > 0 then null else activity_at end`,
      notice: null,
      notice_at: null,
    })
    .where('id', '=', id)
    .execute();
}
