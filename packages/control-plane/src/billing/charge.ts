// Charges prepaid accounts for what their meters have counted. An account is charged as a whole: one ledger entry
// covers everything from the end of the last charge (`charged_until`) to the present instant of the account's clock.
// The same statement moves `charged_until` to that instant. So no time is charged twice, even if several replicas call
// this.
import type { UsageKind } from '@sandbar/contract/billing.ts';
import { type RawBuilder, sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import { amountOf, meteredMs } from './accrual.ts';

/** SQL (bigint): what this kind of use of the meter `m` costs in the span of this charge, in micro-euro. */
const costOf = (kind: UsageKind): RawBuilder<number> =>
  sql`(${amountOf(kind, sql`span.until_ms`)}) - (${amountOf(kind, sql`span.from_ms`)})`;

/**
 * Charges accounts up to the present instants of their clocks (`activity_at`). The caller has locked their rows and
 * moved their clocks. If the amount is 0, no entry is written. Unmetered accounts are not charged.
 */
export async function chargeAccounts(tx: Tx, accountIds: readonly string[]): Promise<void> {
  await charge(tx, accountIds);
}

const charge = statement((db, accountIds: readonly string[]) => ({
  compile: () => chargeSql(accountIds).compile(db as Db),
}));

const chargeSql = (accountIds: readonly string[]) => sql`
  with owing as (
    select id, charged_until, activity_at from accounts
    where id = any(${accountIds}::uuid[]) and billing_mode = 'prepaid' and charged_until < activity_at
  ), used as materialized (
    select m.id, m.account_id, greatest(m.started_at, owing.charged_until) as used_from,
      ${costOf('vcpu')} as vcpu, ${costOf('memory')} as memory, ${costOf('storage')} as storage,
      ${costOf('snapshot')} as snapshot
    from owing
      join meters m on m.account_id = owing.id and m.ended_at > owing.charged_until
      join prices p on p.id = m.price_id
      cross join lateral (
        select ${meteredMs(sql`owing.charged_until`)} as from_ms, ${meteredMs(sql`owing.activity_at`)} as until_ms
        -- OFFSET makes PostgreSQL compute these once for each meter, and not at each use.
        offset 0
      ) as span
  ), due as (
    select account_id, min(used_from) as charged_from, array_agg(id order by id) as meter_ids,
      sum(vcpu)::bigint as vcpu, sum(memory)::bigint as memory, sum(storage)::bigint as storage,
      sum(snapshot)::bigint as snapshot, sum(vcpu + memory + storage + snapshot)::bigint as total
    from used where vcpu + memory + storage + snapshot > 0 group by account_id
  ), charged as (
    update accounts set
      charged_until = accounts.activity_at,
      balance_micros = accounts.balance_micros - due.total,
      empty_since = case when accounts.balance_micros > due.total then null
        else coalesce(accounts.empty_since, accounts.activity_at) end
    from due where accounts.id = due.account_id
    returning accounts.id, accounts.balance_micros, accounts.activity_at
  ), free as (
    -- The time of free use counts as charged too. Otherwise each charge would read all meters since the last entry.
    update accounts set charged_until = accounts.activity_at
    from owing where accounts.id = owing.id and owing.id not in (select account_id from due)
  )
  insert into ledger (id, account_id, kind, amount_micros, sales_vcpu_micros, sales_memory_micros,
    sales_storage_micros, sales_snapshot_micros, balance_micros, charged_from, charged_to, meter_ids, created_at)
  select gen_random_uuid(), charged.id, 'charge', -due.total, due.vcpu, due.memory, due.storage, due.snapshot,
    charged.balance_micros, due.charged_from, charged.activity_at, due.meter_ids, charged.activity_at
  from charged join due on due.account_id = charged.id`;
