// Writes into the ledger what the payment provider reports. The order of the reports does not matter, and repeated
// reports change nothing, even when two replicas get them at the same time: an event id and a ledger reference are
// recorded once.
import { CURRENCY } from '@sandbar/contract/billing.ts';
import type { App } from '../../app.ts';
import type { Db, Tx } from '../../db/database.ts';
import { inTransaction } from '../../db/transaction.ts';
import { addEntry, type Entry } from '../ledger.ts';
import { formatEur, MICROS_PER_CENT } from '../money.ts';
import type { Money, PaymentEvent, PaymentReports } from './provider.ts';

/** The credit for an account's first card: 25 EUR. */
const CARD_BONUS_MICROS = 25_000_000;
const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/**
 * Records an event. An event that cannot be recorded, such as one in another currency, is only logged: the provider
 * would repeat it for days in vain. It is not marked as handled, so the operator can have the provider send it again.
 * Throws when the database or the provider does not answer; then the provider must repeat the event.
 */
export async function applyPaymentEvent(app: App, reports: PaymentReports, event: PaymentEvent): Promise<void> {
  const accountId = await findAccountId(app.db, reports, event);
  const entries = accountId === undefined ? undefined : entriesOf(reports.provider, accountId, event);
  if (entries === undefined) {
    const reason =
      accountId === undefined ? 'it names no account of this service' : 'it has no amount in euro, or names no payment';
    app.log.error({ event, accountId, reason }, 'a payment event was not recorded');
    return;
  }
  const recorded = await inTransaction(app.db, async (tx) =>
    (await isFirst(tx, `${reports.provider}:${event.eventId}`)) ? addEntries(tx, entries) : [],
  );
  for (const { kind, amountMicros, reference } of recorded) {
    app.log.info({ accountId, kind, amount: formatEur(amountMicros), reference }, 'a payment event was recorded');
  }
}

/**
 * A refund or a dispute names only its payment. If the top-up of this payment is not recorded yet, ask the provider.
 */
async function findAccountId(db: Db, reports: PaymentReports, event: PaymentEvent): Promise<string | undefined> {
  if (event.kind === 'payment' || event.kind === 'card') return existing(db, event.accountId);
  if (event.paymentId === undefined) return undefined;
  const topUp = await db
    .selectFrom('ledger')
    .select('account_id')
    .where('reference', '=', `${reports.provider}:${event.paymentId}`)
    .executeTakeFirst();
  return topUp?.account_id ?? existing(db, await reports.findAccountId(event.paymentId));
}

/** Returns the id if the account exists. A deleted account exists, too, because its ledger stays. */
async function existing(db: Db, id: string | undefined): Promise<string | undefined> {
  if (id === undefined || !UUID.test(id)) return undefined;
  return (await db.selectFrom('accounts').select('id').where('id', '=', id).executeTakeFirst())?.id;
}

/** The entries that record an event; undefined if it has no amount in euro or does not name its payment. */
function entriesOf(provider: string, accountId: string, event: PaymentEvent): Entry[] | undefined {
  if (event.kind === 'card') {
    const reference = `card-bonus:${accountId}`;
    return [{ accountId, kind: 'bonus', amountMicros: CARD_BONUS_MICROS, reference, note: 'First card' }];
  }
  const amountMicros = microsOf(event.money);
  if (amountMicros === undefined || event.paymentId === undefined) return undefined;
  if (event.kind === 'payment') {
    return [
      { accountId, kind: 'top-up', amountMicros, reference: `${provider}:${event.paymentId}`, note: 'Paid online' },
    ];
  }
  const reference = `${provider}:${event.id}`;
  const note = `Of the payment ${event.paymentId}`;
  const taken: Entry = { accountId, kind: event.kind, amountMicros: -amountMicros, reference, note };
  // The report of a reversal may come before that of the withdrawal. Then both are recorded now, or the wallet would
  // gain money that it never lost.
  return event.isReversed
    ? [taken, { ...taken, kind: `${event.kind}-reversal`, amountMicros, reference: `${reference}:reversal` }]
    : [taken];
}

function microsOf({ cents, currency }: Money): number | undefined {
  if (!Number.isSafeInteger(cents) || currency?.toUpperCase() !== CURRENCY) return undefined;
  const micros = Number(cents) * MICROS_PER_CENT;
  return Number.isSafeInteger(micros) && micros > 0 ? micros : undefined;
}

/** Marks an event as handled. False if it is marked already. Waits for another transaction that is marking it. */
async function isFirst(tx: Tx, id: string): Promise<boolean> {
  const marked = await tx
    .insertInto('payment_events')
    .values({ id })
    .onConflict((conflict) => conflict.doNothing())
    .returning('id')
    .executeTakeFirst();
  return marked !== undefined;
}

/** Returns the entries that were not in the ledger already. */
async function addEntries(tx: Tx, entries: readonly Entry[]): Promise<Entry[]> {
  const added: Entry[] = [];
  for (const entry of entries) if (await addEntry(tx, entry)) added.push(entry);
  return added;
}
