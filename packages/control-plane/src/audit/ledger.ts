// Audits the ledger: the stored balances are compared with the entries that they sum up, and the charges with what the
// meters have counted. A transaction that writes an entry also changes the account, so all of this agrees at any time.
//
// Entries and balances have no automatic repair. Entries are never changed, and a wrong balance may have a cause that
// repeats. The operator adds a correction.
import { USAGE_KINDS, type UsageKind } from '@sandbar/contract/billing.ts';
import { type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import { amountOf, meteredMs } from '../billing/accrual.ts';
import { formatEur } from '../billing/money.ts';
import { chargeDueAccounts } from '../billing/round.ts';
import type { Finding } from './finding.ts';
import { SHOWN } from './mismatches.ts';

/** A prepaid account is charged every 30 s (config.timing.chargeMs). It is a finding if it was not for this long. */
const LATE = sql`interval '60 seconds'`;

/** Returns the findings about balances, entries and charges. */
export async function findInLedger(app: App): Promise<Finding[]> {
  return [
    ...(await findBalances(app)),
    ...(await findRunningBalances(app)),
    ...(await findSigns(app)),
    ...(await findCharges(app)),
    ...(await findUncharged(app)),
    ...(await findEmptySince(app)),
  ];
}

const about = (accountId: string, what: string) =>
  ({ area: 'ledger', hostId: null, subject: accountId, key: `ledger/${accountId}/${what}` }) as const;

async function findBalances({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: string; balance: number; sum: number }>`
    select accounts.id, balance_micros as balance, coalesce(sums.sum, 0) as sum
    from accounts left join (
      select account_id, sum(amount_micros)::bigint as sum from ledger group by account_id) as sums on account_id = id
    where balance_micros <> coalesce(sums.sum, 0)
    order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, balance, sum }) => ({
    ...about(id, `balance/${balance}/${sum}`),
    detail: `The balance is ${formatEur(balance)} EUR, but the entries sum to ${formatEur(sum)}.`,
  }));
}

/** Finds the first entry of each account whose stored balance is not the sum of the entries up to it. */
async function findRunningBalances({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: string; account_id: string; balance: number; sum: number }>`
    select distinct on (account_id) id, account_id, balance_micros as balance, sum
    from (
      select id, account_id, created_at, balance_micros,
        sum(amount_micros) over (partition by account_id order by created_at, id)::bigint as sum
      from ledger) as entries
    where balance_micros <> sum
    order by account_id, created_at, id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, account_id, balance, sum }) => ({
    ...about(account_id, `entry/${id}`),
    subject: id,
    detail: `The entry has the balance ${formatEur(balance)} EUR, but the entries up to it sum to ${formatEur(sum)}.`,
  }));
}

async function findSigns({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: string; account_id: string; amount: number }>`
    select id, account_id, amount_micros as amount from ledger
    where kind = 'charge' and amount_micros > 0 order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, account_id, amount }) => ({
    ...about(account_id, `sign/${id}`),
    subject: id,
    detail: `A charge of ${formatEur(amount)} EUR of account ${account_id} has the wrong sign.`,
  }));
}

type Charges = { id: string } & Record<`${'charged' | 'metered'}_${UsageKind}`, number>;

/** Compares, for each kind of use, what an account was charged with what its meters cost up to the last charge. */
async function findCharges({ db }: App): Promise<Finding[]> {
  const forKinds = (list: (kind: UsageKind) => RawBuilder<unknown>) => sql.join(USAGE_KINDS.map(list));
  const charged = (kind: UsageKind) => sql.ref(`charged_${kind}`);
  const metered = (kind: UsageKind) => sql.ref(`metered_${kind}`);
  const { rows } = await sql<Charges>`
    with charged as (
      select account_id,
        ${forKinds((kind) => sql`sum(${sql.ref(`sales_${kind}_micros`)})::bigint as ${charged(kind)}`)}
      from ledger where kind = 'charge' group by account_id
    ), metered as (
      select m.account_id,
        ${forKinds((kind) => sql`sum(${amountOf(kind, sql`span.ms`)})::bigint as ${metered(kind)}`)}
      from meters m join prices p on p.id = m.price_id join accounts on accounts.id = m.account_id
        cross join lateral (select ${meteredMs(sql`accounts.charged_until`)} as ms) as span
      group by m.account_id
    ), both_sums as (
      select accounts.id, ${forKinds((kind) => sql`coalesce(${charged(kind)}, 0) as ${charged(kind)}`)},
        ${forKinds((kind) => sql`coalesce(${metered(kind)}, 0) as ${metered(kind)}`)}
      from accounts left join charged on charged.account_id = id left join metered on metered.account_id = id
    )
    select * from both_sums where (${forKinds(charged)}) <> (${forKinds(metered)})
    order by id limit ${SHOWN}`.execute(db);
  return rows.map((row) => {
    const differences = USAGE_KINDS.filter((kind) => row[`charged_${kind}`] !== row[`metered_${kind}`]).map(
      (kind) => `${formatEur(row[`charged_${kind}`])} EUR for ${kind} instead of ${formatEur(row[`metered_${kind}`])}`,
    );
    return { ...about(row.id, 'charges'), detail: `The account was charged ${differences.join(', ')}.` };
  });
}

async function findUncharged({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: string; charged_until: Date }>`
    select id, charged_until from accounts
    where billing_mode = 'prepaid' and charged_until < clock_timestamp() - ${LATE}
      and id in (select account_id from meters
        where ended_at = 'infinity' and price_id <> 0 and started_at < clock_timestamp() - ${LATE})
    order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, charged_until }) => ({
    ...about(id, 'uncharged'),
    detail: `The account was last charged up to ${charged_until.toISOString()}, more than a minute ago.`,
    mend: { fix: 'charge it now', did: 'charged it', run: chargeDueAccounts },
  }));
}

/** Finds accounts whose `empty_since` contradicts their balance. By this time the reclaimer decides when to act. */
async function findEmptySince({ db }: App): Promise<Finding[]> {
  const isWrong = sql<boolean>`(balance_micros <= 0) <> (empty_since is not null)`;
  const { rows } = await sql<{ id: string; balance: number }>`
    select id, balance_micros as balance from accounts where ${isWrong} order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, balance }) => ({
    ...about(id, 'empty'),
    detail: `The balance is ${formatEur(balance)} EUR, but the wallet counts as ${balance > 0 ? 'empty' : 'not empty'}.`,
    mend: {
      fix: 'correct since when the account has no money',
      did: 'corrected since when the account has no money',
      run: (app: App) =>
        sql`update accounts set empty_since = case when balance_micros > 0 then null else clock_timestamp() end
          where id = ${id} and ${isWrong}`.execute(app.db),
    },
  }));
}
