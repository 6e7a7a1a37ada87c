// Adds the operator's credits and corrections to the ledger of an account.
import { type AccountCredit, CREDIT_EUR_MAX } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { addEntry } from '../billing/ledger.ts';
import type { Tx } from '../db/database.ts';
import { readAmount } from './amounts.ts';

export const CREDIT_NOTE = 'by the operator';
const MOST = CREDIT_EUR_MAX * 1_000_000;

/** Returns the amount of a credit in micro-euro. Only a correction may be negative. Throws `validation_error`. */
export function readCredit({ eur, as }: AccountCredit): number {
  const micros = readAmount('eur', eur, { least: as === 'correction' ? -MOST : 1, most: MOST });
  if (micros === 0) throw new ServiceError('validation_error', 'eur must not be 0.');
  return micros;
}

/** Returns the first credit of a new account in micro-euro; it may be 0. Throws `validation_error`. */
export const readFirstCredit = (eur: string): number => readAmount('credit_eur', eur, { least: 0, most: MOST });

/**
 * Adds a credit or a correction of `amountMicros` micro-euro. Returns false, and changes nothing, if this account
 * already has the same entry with this reference. Throws `conflict` if the reference belongs to a different entry.
 */
export async function creditAccount(
  tx: Tx,
  accountId: string,
  amountMicros: number,
  { as, reference, note = CREDIT_NOTE }: AccountCredit,
): Promise<boolean> {
  const named = reference === undefined ? {} : { reference };
  if (await addEntry(tx, { accountId, kind: as, amountMicros, ...named, note })) return true;
  const { account_id, kind, amount_micros } = await tx
    .selectFrom('ledger')
    .select(['account_id', 'kind', 'amount_micros'])
    .where('reference', '=', reference ?? null)
    .executeTakeFirstOrThrow();
  if (account_id === accountId && kind === as && amount_micros === amountMicros) return false;
  const whose = account_id === accountId ? 'this account' : 'another account';
  throw new ServiceError('conflict', `The reference belongs to a different entry, of ${whose}. Nothing was changed.`);
}
