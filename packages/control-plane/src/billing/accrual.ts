// SQL for what a meter has cost up to an instant. An interval [a, b) costs the amount up to b minus the amount up to a.
// These differences add up exactly: any way to cut a meter's time into charges, days or months gives the same total.
//
// All arithmetic is on integers. The expressions read a meter with the alias `m` and its price list with the alias `p`.
import type { UsageKind } from '@sandbar/contract/billing.ts';
import { type RawBuilder, sql } from 'kysely';

const HOUR_MS = 3_600_000;
/** The largest value of PostgreSQL's type bigint. */
const BIGINT_MAX = '9223372036854775807';

/**
 * For each kind: the column of a meter that has the quantity, the column of its price for a unit and hour, and how much
 * of the quantity makes a unit. Memory and snapshots are stored in MiB and sold in GiB.
 */
const KINDS = {
  vcpu: { quantity: 'vcpus', price: 'vcpu_hour_micros', perUnit: 1 },
  memory: { quantity: 'memory_mb', price: 'memory_gib_hour_micros', perUnit: 1024 },
  storage: { quantity: 'storage_gb', price: 'storage_gib_hour_micros', perUnit: 1 },
  snapshot: { quantity: 'snapshot_mb', price: 'snapshot_gib_hour_micros', perUnit: 1024 },
} as const satisfies Record<UsageKind, unknown>;

/** SQL (bigint): the price of a unit and hour, micro-euro. */
export const priceOf = (kind: UsageKind): RawBuilder<number> => sql<number>`p.${sql.ref(KINDS[kind].price)}`;

/** SQL (bigint): the milliseconds between two instants that have whole milliseconds and are not infinite. */
export const msBetween = (from: RawBuilder<unknown>, to: RawBuilder<unknown>): RawBuilder<number> =>
  sql<number>`(extract(epoch from (${to}) - (${from})) * 1000)::bigint`;

/** SQL (bigint): how many milliseconds the meter has run at the instant `until`; 0 before its beginning. */
export const meteredMs = (until: RawBuilder<unknown>): RawBuilder<number> =>
  msBetween(sql`m.started_at`, sql`greatest(m.started_at, least(${until}, m.ended_at))`);

/**
 * SQL (bigint): what the meter has cost when it has run for `ms` milliseconds, in micro-euro, rounded down. `ms` is a
 * bigint expression of at least 0. It occurs several times in the SQL, so pass a column if it is costly.
 */
export function amountOf(kind: UsageKind, ms: RawBuilder<number>): RawBuilder<number> {
  const { quantity, perUnit } = KINDS[kind];
  const rate = sql`(${priceOf(kind)} * m.${sql.ref(quantity)})`;
  const divisor = sql.raw(String(perUnit * HOUR_MS));
  // Multiply as bigint, which is several times as fast as numeric, unless the product is too large for it.
  return sql<number>`case when ${ms} <= ${sql.raw(BIGINT_MAX)} / greatest(${rate}, 1) then ${rate} * ${ms} / ${divisor}
    else div(${rate}::numeric * ${ms}, ${divisor})::bigint end`;
}

/**
 * SQL (bigint): the meter's quantity times `ms` milliseconds, such as MiB x milliseconds for memory. It is exact, so it
 * can be summed; `formatQuantity` turns the sum into hours. For 400 days, the longest usage query, quantities up to
 * 266 million fit into bigint.
 */
export const quantityOf = (kind: UsageKind, ms: RawBuilder<number>): RawBuilder<number> =>
  sql<number>`m.${sql.ref(KINDS[kind].quantity)} * (${ms})`;

/** Turns a sum of `quantityOf` into unit-hours, such as GiB-hours, rounded down to six decimals. */
export function formatQuantity(kind: UsageKind, sum: bigint): string {
  const millionths = (sum * 1_000_000n) / BigInt(KINDS[kind].perUnit * HOUR_MS);
  const digits = String(millionths).padStart(7, '0');
  return `${digits.slice(0, -6)}.${digits.slice(-6)}`;
}
