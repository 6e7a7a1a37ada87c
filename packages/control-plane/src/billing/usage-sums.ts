// Sums the meters of an account in a time range, by group and day, in one SQL statement.
import {
  type ResourceKind,
  USAGE_GROUPS_MAX,
  USAGE_KINDS,
  USAGE_VALUE_MAX,
  type UsageKind,
} from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type RawBuilder, sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import { amountOf, msBetween, quantityOf } from './accrual.ts';

const EPOCH = sql`timestamptz 'epoch'`;
/** SQL: how long a meter has run at a cut, and how long it has run since the previous cut, milliseconds. */
const RAN_MS = sql<number>`ran.ms`;
const SINCE_MS = sql<number>`ran.since_ms`;
const METADATA_PREFIX = 'metadata.';

/** `cuts`: the instants that split the range into parts, in order; the first and the last one are its bounds. */
export type Selection = { accountId: string; machineId: string | undefined; cuts: Date[]; groupBy: string };

/** The sums over a group of meters in one part of the range; `part` counts from 0. */
export type GroupSums = {
  part: number;
  resource_kind?: ResourceKind;
  resource_id?: string;
  metadata_value?: string | null;
} & { [K in `${UsageKind}_amount`]: number } & { [K in `${UsageKind}_quantity`]: string };

/**
 * Sums meters by group and by part of the range.
 *
 * A part lies between two cuts. It costs what its meters have cost up to its end, minus what they had cost up to its
 * beginning. `sums` has one row for each cut: the cost, from their beginnings up to this cut, of all meters that ran
 * since the previous cut. `parts` subtracts the previous row from each row. Meters that ended by the previous cut are
 * in the previous row only, so their cost is not subtracted. This way each meter is computed once for each cut. To
 * compute it at both ends of each part would take twice as long.
 *
 * Throws `validation_error` for too many groups, because the whole answer is held in memory.
 */
export async function sumMeters(tx: Tx, { accountId, machineId, cuts, groupBy }: Selection): Promise<GroupSums[]> {
  const columns = groupColumns(groupBy);
  const [from, to] = [cuts[0], cuts.at(-1)];
  const cutsMs = cuts.map((cut) => cut.getTime());
  // `used` keeps only meters that ended after the first cut, so the cut before that one does not matter.
  const beforeMs = [0, ...cutsMs.slice(0, -1)];
  const { rows } = await sql<GroupSums>`
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
      select cut.place, ${list(columns)} ${sql.join(USAGE_KINDS.map(sumsOf))}
      from used as m
      join prices as p on p.id = m.price_id
      join unnest(${beforeMs}::bigint[], ${cutsMs}::bigint[]) with ordinality as cut (before_ms, ms, place)
        on m.started_ms < cut.ms and m.ended_ms > cut.before_ms,
      lateral (
        select least(m.ended_ms, cut.ms) - m.started_ms as ms,
          least(m.ended_ms, cut.ms) - greatest(m.started_ms, cut.before_ms) as since_ms
        -- OFFSET makes PostgreSQL compute these once, and not at each use.
        offset 0
      ) as ran
      group by ${list(columns)} cut.place
    ),
    parts as (
      select place - 2 as part, ${list(columns)} ${sql.join(USAGE_KINDS.map(partOf))}
      from sums
      window by_place as (${columns.length === 0 ? sql`` : sql`partition by ${sql.join(columns)}`} order by place)
    )
    select * from parts where part >= 0 order by ${list(columns)} part
    limit ${USAGE_GROUPS_MAX + 1}`.execute(tx);
  if (rows.length <= USAGE_GROUPS_MAX) return rows;
  const detail = `group_by gives more than ${USAGE_GROUPS_MAX} groups. Ask for a shorter range (from, to).`;
  throw new ServiceError('validation_error', detail);
}

/** The columns of meters by which the sums are grouped, besides the part of the range. */
function groupColumns(groupBy: string): RawBuilder<unknown>[] {
  if (groupBy === 'resource') return [sql.ref('resource_id'), sql.ref('resource_kind')];
  return groupBy.startsWith(METADATA_PREFIX) ? [sql.ref('metadata_value')] : [];
}

/** The beginning of the value of a metadata key as text; null where the meter has none. A value can have 16 KiB. */
const metadataValue = (groupBy: string): RawBuilder<unknown> =>
  groupBy.startsWith(METADATA_PREFIX)
    ? sql`left(metadata ->> ${groupBy.slice(METADATA_PREFIX.length)}, ${USAGE_VALUE_MAX})`
    : sql`null::text`;

/** Writes columns with a comma after each of them. */
const list = (columns: RawBuilder<unknown>[]): RawBuilder<unknown> =>
  sql.join(
    columns.map((column) => sql`${column},`),
    sql` `,
  );

/**
 * SQL, at a cut: what the meters have cost, how much of this cost is from meters that have ended, and the quantity
 * since the previous cut.
 */
const sumsOf = (kind: UsageKind): RawBuilder<unknown> => sql`
  sum(${amountOf(kind, RAN_MS)})::bigint as ${sql.ref(`${kind}_amount`)},
  coalesce(sum(${amountOf(kind, RAN_MS)}) filter (where m.ended_ms <= cut.ms), 0)::bigint as ${sql.ref(`${kind}_ended`)},
  sum(${quantityOf(kind, SINCE_MS)}) as ${sql.ref(`${kind}_quantity`)}`;

/** Between two cuts: the amount at the later cut minus the amount of the meters that still ran at the earlier cut. */
function partOf(kind: UsageKind): RawBuilder<unknown> {
  const [amount, ended] = [sql.ref(`${kind}_amount`), sql.ref(`${kind}_ended`)];
  return sql`
    ${amount} - coalesce(lag(${amount} - ${ended}) over by_place, 0) as ${amount},
    ${sql.ref(`${kind}_quantity`)}`;
}
