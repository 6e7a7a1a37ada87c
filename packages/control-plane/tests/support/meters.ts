// Meters for tests of billing: random ones, their rows in the database, and what they cost by arithmetic on BigInt.
import type { UsageKind } from '@sandbar/contract/billing.ts';
import fc from 'fast-check';
import { sql } from 'kysely';
import type { MeterTable } from '../../src/db/billing-tables.ts';
import type { Db } from '../../src/db/database.ts';

const HOUR_MS = 3_600_000n;

export type TestMeter = Pick<
  MeterTable,
  'resource_kind' | 'resource_id' | 'vcpus' | 'memory_mb' | 'storage_gb' | 'snapshot_mb'
> & { price_id: number; metadata: Record<string, unknown>; startedMs: number; endedMs: number | null };

export type TestPrices = { [K in `${UsageKind}_micros`]: number };

/** Inserts a price list and returns its id. */
export async function insertPrices(db: Db, prices: TestPrices): Promise<number> {
  const { id } = await db
    .insertInto('prices')
    .values({
      vcpu_hour_micros: prices.vcpu_micros,
      memory_gib_hour_micros: prices.memory_micros,
      storage_gib_hour_micros: prices.storage_micros,
      snapshot_gib_hour_micros: prices.snapshot_micros,
    })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

/** Inserts meters of an account and returns their ids. */
export async function insertMeters(db: Db, accountId: string, meters: readonly TestMeter[]): Promise<number[]> {
  const { rows } = await sql<{ id: number }>`
    insert into meters (account_id, resource_kind, resource_id, vcpus, memory_mb, storage_gb, snapshot_mb, price_id,
      metadata, started_at, ended_at)
    select ${accountId}, resource_kind, resource_id, vcpus, memory_mb, storage_gb, snapshot_mb, price_id, metadata,
      to_timestamp("startedMs"::numeric / 1000), coalesce(to_timestamp("endedMs"::numeric / 1000), 'infinity')
    from json_to_recordset(${JSON.stringify(meters)}) as m (resource_kind text, resource_id uuid, vcpus int,
      memory_mb int, storage_gb int, snapshot_mb int, price_id int, metadata jsonb, "startedMs" bigint,
      "endedMs" bigint)
    returning id`.execute(db);
  return rows.map(({ id }) => id);
}

/** The quantity of a meter, and how much of it is a unit. */
const quantityOf = (meter: TestMeter): Record<UsageKind, [bigint, bigint]> => ({
  vcpu: [BigInt(meter.vcpus), 1n],
  memory: [BigInt(meter.memory_mb), 1024n],
  storage: [BigInt(meter.storage_gb), 1n],
  snapshot: [BigInt(meter.snapshot_mb), 1024n],
});

/** A meter's use from one instant to another (ms): the amount in micro-euro, and quantity times milliseconds. */
export function useOf(meter: TestMeter, prices: TestPrices, kind: UsageKind, fromMs: number, toMs: number) {
  const end = meter.endedMs ?? Number.POSITIVE_INFINITY;
  const ranUntil = (instant: number) => BigInt(Math.max(0, Math.min(instant, end) - meter.startedMs));
  const [quantity, perUnit] = quantityOf(meter)[kind];
  const cost = (ms: bigint) => (BigInt(prices[`${kind}_micros`]) * quantity * ms) / (perUnit * HOUR_MS);
  const [before, after] = [ranUntil(fromMs), ranUntil(toMs)];
  return { micros: cost(after) - cost(before), quantity: quantity * (after - before) };
}

/** Micro-euro as text with six decimals. */
export function eurOf(micros: bigint): string {
  const digits = String(micros < 0n ? -micros : micros).padStart(7, '0');
  return `${micros < 0n ? '-' : ''}${digits.slice(0, -6)}.${digits.slice(-6)}`;
}

/** A sum of quantity times milliseconds as hours of units with six decimals. */
export const hoursOf = (kind: UsageKind, quantity: bigint): string =>
  eurOf((quantity * 1_000_000n) / ((kind === 'memory' || kind === 'snapshot' ? 1024n : 1n) * HOUR_MS));

/**
 * Random meters that begin from `fromMs` to `toMs`. Some have no end, some last only milliseconds. Their metadata has
 * the key `team` with several values, or not.
 */
export function randomMeters(
  seed: number,
  count: number,
  fromMs: number,
  toMs: number,
  priceIds: number[],
): TestMeter[] {
  const machine = fc.record({
    resource_kind: fc.constant('machine' as const),
    vcpus: fc.nat(16),
    memory_mb: fc.nat(65_536),
    storage_gb: fc.nat(200),
    snapshot_mb: fc.constant(0),
  });
  const volume = fc.record({
    resource_kind: fc.constant('volume' as const),
    ...{ vcpus: fc.constant(0), memory_mb: fc.constant(0), storage_gb: fc.integer({ min: 1, max: 500 }) },
    snapshot_mb: fc.constant(0),
  });
  const snapshot = fc.record({
    resource_kind: fc.constant('snapshot' as const),
    ...{ vcpus: fc.constant(0), memory_mb: fc.constant(0), storage_gb: fc.constant(0) },
    snapshot_mb: fc.integer({ min: 1, max: 100_000 }),
  });
  const meter = fc
    .tuple(
      fc.oneof({ weight: 3, arbitrary: machine }, volume, snapshot),
      fc.uuid(),
      fc.constantFrom(...priceIds),
      fc.constantFrom({}, { team: 'a' }, { team: 'b', x: 1 }, { team: '=1+1' }, { team: null }, { team: ['a'] }),
      fc.integer({ min: fromMs, max: toMs }),
      fc.oneof(fc.nat(2_000), fc.nat(toMs - fromMs), fc.constant(null)),
    )
    .map(([size, resource_id, price_id, metadata, startedMs, lastedMs]) => ({
      ...size,
      ...{ resource_id, price_id, metadata, startedMs },
      endedMs: lastedMs === null ? null : startedMs + lastedMs,
    }));
  return fc.sample(meter, { seed, numRuns: count });
}
