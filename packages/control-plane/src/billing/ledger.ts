// Writes entries that move money into or out of a wallet, except charges (charge.ts). The ledger has double entry: each
// row adds to the wallet what it takes from another book, so its books sum to zero, which the database checks. The same
// transaction changes the balance in the account's row.
import type { LedgerKind } from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { Tx } from '../db/database.ts';
import { NEXT_INSTANT } from './clock.ts';

/** The book that each kind of entry moves money from or to. */
const BOOKS = {
  'top-up': 'payments_micros',
  refund: 'payments_micros',
  'refund-reversal': 'payments_micros',
  dispute: 'payments_micros',
  'dispute-reversal': 'payments_micros',
  bonus: 'bonuses_micros',
  correction: 'corrections_micros',
} as const satisfies Record<Exclude<LedgerKind, 'charge'>, string>;

/** The kinds that take money out of the wallet. A correction may do either. All other kinds put money in. */
const WITHDRAWALS: readonly LedgerKind[] = ['refund', 'dispute'];

export type Entry = {
  accountId: string;
  kind: keyof typeof BOOKS;
  /** What the wallet gets, micro-euro; negative for a refund and a dispute, and never 0. */
  amountMicros: number;
  /** A unique name of what happened, such as the payment's id. A second entry with this reference is not written. */
  reference?: string;
  note: string;
};

/**
 * Adds an entry to the ledger and to the account's balance. Returns false, and changes nothing, if there is an entry
 * with this reference already. The first top-up of an account moves it from tier free to payg, so its limits grow at
 * once. Throws `validation_error` for an amount that is zero, fractional or of the wrong sign, and PostgreSQL's unique
 * violation if a parallel transaction for another account writes the same reference.
 */
export async function addEntry(tx: Tx, entry: Entry): Promise<boolean> {
  const { accountId, kind, amountMicros, reference } = entry;
  checkAmount(kind, amountMicros);
  // From here on, other transactions for the same payment wait, and then find its entry.
  await lockAccount(tx, accountId);
  if (reference !== undefined && (await hasEntry(tx, reference))) return false;
  if (kind === 'top-up') await leaveFreeTier(tx, accountId);
  await insertEntry(tx, entry);
  return true;
}

function checkAmount(kind: LedgerKind, amountMicros: number): void {
  const isSigned = kind === 'correction' || WITHDRAWALS.includes(kind) === amountMicros < 0;
  if (Number.isSafeInteger(amountMicros) && amountMicros !== 0 && isSigned) return;
  const sign = WITHDRAWALS.includes(kind) ? 'less' : 'more';
  throw new ServiceError('validation_error', `The amount of a ${kind} must be ${sign} than 0 EUR.`);
}

const hasEntry = async (tx: Tx, reference: string): Promise<boolean> =>
  (await tx.selectFrom('ledger').select('id').where('reference', '=', reference).executeTakeFirst()) !== undefined;

/** If the wallet has money after a credit, the time without money ends, and the warnings start anew. */
async function insertEntry(tx: Tx, { accountId, kind, amountMicros, reference, note }: Entry): Promise<void> {
  const book = sql.ref(BOOKS[kind]);
  await sql`
    with account as (
      update accounts set
        balance_micros = balance_micros + ${amountMicros}::bigint,
        full_micros = case when ${amountMicros}::bigint > 0 then greatest(balance_micros + ${amountMicros}::bigint, 0)
          else full_micros end,
        empty_since = case when balance_micros + ${amountMicros}::bigint > 0 then null
          else coalesce(empty_since, ${NEXT_INSTANT}) end,
        notice = case when balance_micros + ${amountMicros}::bigint > 0 and ${amountMicros}::bigint > 0 then null
          else notice end,
        activity_at = ${NEXT_INSTANT}
      where id = ${accountId}
      returning id, balance_micros, activity_at
    )
    insert into ledger (id, account_id, kind, amount_micros, ${book}, balance_micros, reference, note, created_at)
    select gen_random_uuid(), account.id, ${kind}, ${amountMicros}::bigint, -${amountMicros}::bigint,
      account.balance_micros, ${reference ?? null}, ${note}, account.activity_at
    from account`.execute(tx);
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
