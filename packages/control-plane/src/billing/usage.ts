// Computes what an account has used in a time range, and what that cost, straight from its meters. Amounts come from
// the same arithmetic as charges (accrual.ts), so they add up to what the ledger says.
import {
  CURRENCY,
  type ResourceKind,
  USAGE_KINDS,
  USAGE_UNITS,
  type Usage,
  type UsageItem,
  type UsageKind,
  type UsageQuery,
} from '@sandbar/contract/billing.ts';
import { type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { amountOf, formatQuantity, msBetween, quantityOf } from './accrual.ts';
import { formatEur } from './money.ts';
import { readAccountUse, readUsageRange, splitDays } from './usage-range.ts';

const EPOCH = sql`timestamptz 'epoch'`;
const METADATA_PREFIX = 'metadata.';

/** The use of an account. Throws `validation_error` when `to` is before `from`, or the range is too long. */
export async function getUsage(app: App, accountId: string, query: UsageQuery): Promise<Usage> {
  const groupBy = query.group_by ?? 'kind';
  // One snapshot of the database, so that no charge comes between reading the account and its meters.
  const { account, range, cuts, rows } = await app.db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (tx) => {
      const account = await readAccountUse(tx, accountId);
      const range = readUsageRange(query, account);
      const cuts = groupBy === 'day' ? splitDays(range) : [range.from, range.to];
      return {
        account,
        range,
        cuts,
        rows: await sumMeters(tx, { accountId, machineId: query.machine_id, cuts, groupBy }),
      };
    });
  const items = rows.flatMap((row) => {
    const cut = cuts[row.part];
    return USAGE_KINDS.flatMap((kind) => toItem(row, kind, groupBy === 'day' ? cut : undefined));
  });
  return {
    currency: CURRENCY,
    balance: formatEur(account.balanceMicros),
    from: range.from.toISOString(),
    to: range.to.toISOString(),
    total: formatEur(items.reduce((sum, { micros }) => sum + micros, 0)),
    items: items.map(({ item }) => item),
  };
}

/** `cuts`: the instants that split the range into parts, in order; the first and the last one are its bounds. */
type Selection = { accountId: string; machineId: string | undefined; cuts: Date[]; groupBy: string };

/** The sums over a group of meters in one part of the range; `part` counts from 0. */
type Row = {
  part: number;
  resource_kind?: ResourceKind;
  resource_id?: string;
  metadata_value?: string | null;
} & { [K in `${UsageKind}_amount`]: number } & { [K in `${UsageKind}_quantity`]: string };

/**
 * Sums the meters by group and part. First it computes, for each cut, what the meters had cost up to then: those that
 * ran at the cut or had ended since the cut before. A part costs that sum at its end minus the sum at its beginning,
 * without the meters that had ended by its beginning. So each meter is computed once for each cut, not twice for each
 * part, and the sums of neighbouring parts fit together exactly.
 */
async function sumMeters(tx: Tx, { accountId, machineId, cuts, groupBy }: Selection): Promise<Row[]> {
  const columns = groupColumns(groupBy);
  const [from, to] = [cuts[0], cuts.at(-1)];
  const cutsMs = cuts.map((cut) => cut.getTime());
  // `used` keeps only meters that ended after the first cut, so the cut before that one does not matter.
  const beforeMs = [0, ...cutsMs.slice(0, -1)];
  const ran = sql<number>`ran.ms`;
  const { rows } = await sql<Row>`
    with used as materialized (
      select vcpus, memory_mb, storage_gb, snapshot_mb, price_id, resource_kind, resource_id,
        ${metadataValue(groupBy)} as metadata_value,
        ${msBetween(EPOCH, sql`started_at`)} as started_ms,
        ${msBetween(EPOCH, sql`least(ended_at, ${to}::timestamptz)`)} as ended_ms
      from meters
      where account_id = ${accountId} and ended_at > ${from} and started_at < ${to}
        ${machineId === undefined ? sql`` : sql`and resource_kind = 'machine' and resource_id = ${machineId}`}
    ),
    sums as (
      select cut.place, ${list(columns)} ${sql.join(USAGE_KINDS.map((kind) => sumsOf(kind, ran)))}
      from used as m
      join prices as p on p.id = m.price_id
      join unnest(${beforeMs}::bigint[], ${cutsMs}::bigint[]) with ordinality as cut (before_ms, ms, place)
        on m.started_ms < cut.ms and m.ended_ms > cut.before_ms,
      lateral (select least(m.ended_ms, cut.ms) - m.started_ms as ms offset 0) as ran
      group by ${list(columns)} cut.place
    ),
    parts as (
      select place - 2 as part, ${list(columns)} ${sql.join(USAGE_KINDS.map(partOf))}
      from sums
      window by_place as (${columns.length === 0 ? sql`` : sql`partition by ${sql.join(columns)}`} order by place)
    )
    select * from parts where part >= 0 order by ${list(columns)} part`.execute(tx);
  return rows;
}

/** The columns of meters by which the sums are grouped, besides the part of the range. */
function groupColumns(groupBy: string): RawBuilder<unknown>[] {
  if (groupBy === 'resource') return [sql.ref('resource_id'), sql.ref('resource_kind')];
  return groupBy.startsWith(METADATA_PREFIX) ? [sql.ref('metadata_value')] : [];
}

/** The value of a metadata key as text; null where the meter has none. */
const metadataValue = (groupBy: string): RawBuilder<unknown> =>
  groupBy.startsWith(METADATA_PREFIX) ? sql`metadata ->> ${groupBy.slice(METADATA_PREFIX.length)}` : sql`null::text`;

/** Writes columns with a comma after each of them. */
const list = (columns: RawBuilder<unknown>[]): RawBuilder<unknown> =>
  sql.join(
    columns.map((column) => sql`${column},`),
    sql` `,
  );

/** At a cut: what meters have cost, how much of that is of meters that have ended, and the quantity since the cut before. */
function sumsOf(kind: UsageKind, ran: RawBuilder<number>): RawBuilder<unknown> {
  const sincePrevious = sql<number>`ran.ms - greatest(cut.before_ms - m.started_ms, 0)`;
  return sql`
    sum(${amountOf(kind, ran)})::bigint as ${sql.ref(`${kind}_amount`)},
    coalesce(sum(${amountOf(kind, ran)}) filter (where m.ended_ms <= cut.ms), 0)::bigint as ${sql.ref(`${kind}_ended`)},
    sum(${quantityOf(kind, sincePrevious)}) as ${sql.ref(`${kind}_quantity`)}`;
}

/** Between two cuts: the amount at the later cut minus the amount of the meters that still ran at the earlier cut. */
function partOf(kind: UsageKind): RawBuilder<unknown> {
  const [amount, ended] = [sql.ref(`${kind}_amount`), sql.ref(`${kind}_ended`)];
  return sql`
    ${amount} - coalesce(lag(${amount} - ${ended}) over by_place, 0) as ${amount},
    ${sql.ref(`${kind}_quantity`)}`;
}

/** An item of the answer, or nothing for a kind that the group did not use. */
function toItem(row: Row, kind: UsageKind, day: Date | undefined): { micros: number; item: UsageItem }[] {
  const quantity = BigInt(row[`${kind}_quantity`]);
  if (quantity === 0n) return [];
  const micros = row[`${kind}_amount`];
  const item: UsageItem = {
    kind,
    resource_kind: row.resource_kind ?? null,
    resource_id: row.resource_id ?? null,
    day: day?.toISOString().slice(0, 10) ?? null,
    metadata_value: row.metadata_value ?? null,
    quantity: formatQuantity(kind, quantity),
    unit: USAGE_UNITS[kind],
    amount: formatEur(micros),
  };
  return [{ micros, item }];
}
