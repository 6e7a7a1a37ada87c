// Reads from the ledger what changed a wallet in one month. A charge has one amount for each kind of use. The
// quantities and prices behind these amounts come from the account's meters.
import type { Invoice } from '@sandbar/contract/admin-billing.ts';
import { CURRENCY, USAGE_KINDS, USAGE_UNITS, type UsageKind } from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';
import { amountOf, formatQuantity, meteredMs, priceOf, quantityOf } from './accrual.ts';
import { formatEur } from './money.ts';

const MONTH = /^(2\d{3})-(0[1-9]|1[0-2])$/;

/** The balance after an entry of the ledger, and the time of the entry. */
type State = { created_at: Date; balance_micros: number };
type Use = { kind: UsageKind; price: number; quantity: string; amount: number };
type MoneyRow = { kind: Invoice['money'][number]['kind']; entries: number; amount: number };
type Sales = Record<UsageKind, number>;

/**
 * Reads the invoice of a month, such as "2026-10", up to the present if the month is not over. Throws
 * `validation_error` for a month that is malformed or in the future, and `conflict` when ledger and meters do not
 * agree.
 */
export async function readInvoice(db: Db, account: AccountRow, month: string): Promise<Invoice> {
  const { from, to, isFinal } = await readMonth(db, month);
  const [before, last] = await Promise.all([stateBefore(db, account.id, from), stateBefore(db, account.id, to)]);
  // Entries are never changed, and a new one is later than all others. So everything up to the last entry stays as it
  // is while the queries below run.
  const [money, sales, use] = await Promise.all([
    readMoney(db, account.id, from, last),
    readSales(db, account.id, from, last),
    readUse(db, account.id, from, last),
  ]);
  const opening = before?.balance_micros ?? 0;
  const closing = last?.balance_micros ?? 0;
  const sold = sum(USAGE_KINDS.map((kind) => sales[kind]));
  check(account.id, opening + sum(money.map(({ amount }) => amount)) - sold === closing, 'its balances');
  for (const kind of USAGE_KINDS) {
    const metered = -sum(use.filter((line) => line.kind === kind).map(({ amount }) => amount));
    check(account.id, metered === sales[kind], 'its meters');
  }
  return {
    account_id: account.id,
    email: account.email,
    billing_mode: account.billing_mode,
    currency: CURRENCY,
    month,
    from: from.toISOString(),
    to: to.toISOString(),
    is_final: isFinal,
    opening: formatEur(opening),
    closing: formatEur(closing),
    money: money.map((row) => ({ ...row, amount: formatEur(row.amount) })),
    use: use.map(({ kind, price, quantity, amount }) => ({
      kind,
      unit: USAGE_UNITS[kind],
      quantity: formatQuantity(kind, BigInt(quantity)),
      price: formatEur(price),
      amount: formatEur(amount),
    })),
  };
}

async function readMonth(db: Db, month: string): Promise<{ from: Date; to: Date; isFinal: boolean }> {
  const [, year, number] = MONTH.exec(month)?.map(Number) ?? [];
  if (year === undefined || number === undefined) {
    throw new ServiceError('validation_error', 'month must be a month such as 2026-10.');
  }
  const [from, to] = [new Date(Date.UTC(year, number - 1, 1)), new Date(Date.UTC(year, number, 1))];
  const { rows } = await sql<{ now: Date }>`select now() as now`.execute(db);
  const now = rows[0]?.now ?? from;
  if (from > now) throw new ServiceError('validation_error', 'month must not be in the future.');
  return { from, to, isFinal: to <= now };
}

/** Reads the balance after the last entry before an instant; undefined if there is no such entry. */
const stateBefore = (db: Db, accountId: string, instant: Date): Promise<State | undefined> =>
  db
    .selectFrom('ledger')
    .select(['created_at', 'balance_micros'])
    .where('account_id', '=', accountId)
    .where('created_at', '<', instant)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();

/** SQL: the account's entries from `from` up to the entry `last`, inclusive. */
const entries = (accountId: string, from: Date, last: State | undefined) =>
  sql`ledger where account_id = ${accountId} and created_at >= ${from} and created_at <= ${last?.created_at ?? null}`;

/** For each kind of entry except charges: how many there are, and what they add to the wallet in micro-euro. */
async function readMoney(db: Db, accountId: string, from: Date, last: State | undefined): Promise<MoneyRow[]> {
  const { rows } = await sql<MoneyRow>`
    select kind, count(*) as entries, sum(amount_micros)::bigint as amount
    from ${entries(accountId, from, last)} and kind <> 'charge'
    group by kind order by min(created_at)`.execute(db);
  return rows;
}

/** What the charges took from the wallet for each kind of use, in micro-euro. */
async function readSales(db: Db, accountId: string, from: Date, last: State | undefined): Promise<Sales> {
  const { rows } = await sql<Sales>`
    select coalesce(sum(sales_vcpu_micros), 0)::bigint as vcpu, coalesce(sum(sales_memory_micros), 0)::bigint as memory,
      coalesce(sum(sales_storage_micros), 0)::bigint as storage,
      coalesce(sum(sales_snapshot_micros), 0)::bigint as snapshot
    from ${entries(accountId, from, last)}`.execute(db);
  return rows[0] ?? { vcpu: 0, memory: 0, storage: 0, snapshot: 0 };
}

/**
 * The quantities behind the charges, by kind and price. The charges of a month cover all time from the last charge
 * before the month to the last charge in it, except spans that cost nothing. So one pass over the meters of that time
 * gives the same amounts as the charges one by one.
 */
async function readUse(db: Db, accountId: string, from: Date, last: State | undefined): Promise<Use[]> {
  const sums = USAGE_KINDS.map(
    (kind) => sql`
      sum(${quantityOf(kind, sql`span.until_ms - span.from_ms`)}) as ${sql.ref(`${kind}_quantity`)},
      sum((${amountOf(kind, sql`span.until_ms`)}) - (${amountOf(kind, sql`span.from_ms`)})) as ${sql.ref(`${kind}_amount`)}`,
  );
  const lines = USAGE_KINDS.map(
    (kind) => sql`(${sql.lit(kind)}, ${priceOf(kind)}, ${sql.ref(`${kind}_quantity`)}, ${sql.ref(`${kind}_amount`)})`,
  );
  const { rows } = await sql<Use>`
    with charged as (
      select (select max(charged_to) from ledger
          where account_id = ${accountId} and kind = 'charge' and charged_to < ${from}) as since,
        max(charged_to) as until
      from ${entries(accountId, from, last)} and kind = 'charge'
    ), sums as (
      select m.price_id, ${sql.join(sums)}
      from charged
        join meters m on m.account_id = ${accountId} and m.started_at < charged.until
          and m.ended_at > coalesce(charged.since, '-infinity')
        join prices p on p.id = m.price_id
        cross join lateral (
          select ${meteredMs(sql`charged.until`)} as until_ms,
            ${meteredMs(sql`coalesce(charged.since, m.started_at)`)} as from_ms
          -- PostgreSQL then computes these once for each meter, and not wherever they occur.
          offset 0
        ) as span
      group by m.price_id
    )
    select line.kind, line.price, sum(line.quantity)::text as quantity, -sum(line.amount)::bigint as amount
    from sums
      join prices p on p.id = sums.price_id
      cross join lateral (values ${sql.join(lines)}) as line (kind, price, quantity, amount)
    group by line.kind, line.price having sum(line.amount) > 0
    order by array_position(array['vcpu', 'memory', 'storage', 'snapshot'], line.kind), line.price`.execute(db);
  return rows;
}

const sum = (amounts: readonly number[]): number => amounts.reduce((total, amount) => total + amount, 0);

function check(accountId: string, holds: boolean, what: string): void {
  if (holds) return;
  const detail = `The ledger of account ${accountId} and ${what} do not agree, so there is no invoice. Run sandbar doctor.`;
  throw new ServiceError('conflict', detail);
}
