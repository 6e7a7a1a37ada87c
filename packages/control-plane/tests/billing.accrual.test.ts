// Compares the SQL that computes what a meter costs with arithmetic on BigInt, for random meters, in real PostgreSQL.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { USAGE_KINDS, type UsageKind } from '@sandbar/contract/billing.ts';
import fc from 'fast-check';
import { type RawBuilder, sql } from 'kysely';
import { amountOf, formatQuantity, meteredMs, quantityOf } from '../src/billing/accrual.ts';
import { asOwner } from '../src/db/database.ts';
import { createLog } from '../src/log.ts';
import { createDatabase, endSharedPostgres } from './support/postgres.ts';

const UNITS: Record<UsageKind, bigint> = { vcpu: 1n, memory: 1024n, storage: 1n, snapshot: 1024n };
const HOUR_MS = 3_600_000n;
const BIGINT_MAX = 2n ** 63n - 1n;

type Case = { quantity: number; price: number; startedMs: number; endedMs: number | null; untilMs: number };
type Answer = { ms: string; amounts: string[]; quantities: string[] };

const url = await createDatabase();
after(endSharedPostgres);

const asText = (expressions: RawBuilder<number>[]) =>
  sql`array[${sql.join(expressions.map((e) => sql`(${e})::text`))}]`;

/** Computes each case with the SQL. All four kinds of usage of a case have the same quantity and the same price. */
async function ask(cases: readonly Case[]): Promise<Answer[]> {
  const instant = (name: string) => sql`to_timestamp(${sql.ref(name)}::numeric / 1000)::timestamptz(3)`;
  const ms = sql<number>`t.ms`;
  const query = sql<Answer>`
    with c as materialized (
      select * from json_to_recordset(${JSON.stringify(cases.map((row, place) => ({ ...row, place })))})
        as c (place int, quantity int, price bigint, "startedMs" bigint, "endedMs" bigint, "untilMs" bigint)),
    m as materialized (
      select place, quantity as vcpus, quantity as memory_mb, quantity as storage_gb, quantity as snapshot_mb,
        ${instant('startedMs')} as started_at, coalesce(${instant('endedMs')}, 'infinity') as ended_at,
        to_timestamp("untilMs"::numeric / 1000)::timestamptz(3) as until
      from c),
    p as materialized (
      select place, price as vcpu_hour_micros, price as memory_gib_hour_micros, price as storage_gib_hour_micros,
        price as snapshot_gib_hour_micros
      from c)
    select t.ms::text as ms, ${asText(USAGE_KINDS.map((kind) => amountOf(kind, ms)))} as amounts,
      ${asText(USAGE_KINDS.map((kind) => quantityOf(kind, ms)))} as quantities
    from m join p using (place), lateral (select ${meteredMs(sql`m.until`)} as ms offset 0) as t
    order by place`;
  const { rows } = await asOwner(url, createLog('silent'), (db) => query.execute(db));
  return rows;
}

/** The same values, computed with BigInt. */
function expected({ quantity, price, startedMs, endedMs, untilMs }: Case): Answer {
  const end = Math.min(untilMs, endedMs ?? Number.POSITIVE_INFINITY);
  const ms = BigInt(Math.max(0, end - startedMs));
  return {
    ms: String(ms),
    amounts: USAGE_KINDS.map((kind) => String((BigInt(price) * BigInt(quantity) * ms) / (UNITS[kind] * HOUR_MS))),
    quantities: USAGE_KINDS.map(() => String(BigInt(quantity) * ms)),
  };
}

const anInstant = fc.integer({ min: 0, max: Date.UTC(2200, 0) });
const aMeter: fc.Arbitrary<Case> = fc.record({
  quantity: fc.oneof(fc.nat(64), fc.nat(1 << 20)),
  price: fc.oneof(fc.nat(100_000), fc.nat(100_000_000)),
  startedMs: anInstant,
  endedMs: fc.option(anInstant),
  untilMs: anInstant,
});
/** Meters whose amounts fit into a bigint: a wallet cannot hold more. */
const meters = (seed: number, numRuns: number) =>
  fc
    .sample(aMeter, { seed, numRuns })
    .filter((row) => expected(row).amounts.every((text) => BigInt(text) < BIGINT_MAX));

describe('what a meter costs', () => {
  it('is what arithmetic on BigInt says, for products below and above the largest bigint', async () => {
    const cases = meters(15, 5_000);
    const products = cases.map((c) => BigInt(c.price) * BigInt(c.quantity) * BigInt(expected(c).ms));
    assert(products.some((product) => product > BIGINT_MAX) && products.some((product) => product < BIGINT_MAX));
    assert.deepEqual(await ask(cases), cases.map(expected));
  });

  it('is exact when the product just fits into a bigint, and when it is just too large', async () => {
    const cases = [2_000_000, 16_000 * 4096, 999_999_937].flatMap((rate) => {
      const longest = Number(BIGINT_MAX / BigInt(rate));
      const around = [longest - 1, longest, longest + 1].filter((ms) => ms < Date.UTC(9999, 0));
      return around.map((untilMs) => ({ quantity: 1, price: rate, startedMs: 0, endedMs: null, untilMs }));
    });
    assert(cases.length >= 6);
    assert.deepEqual(await ask(cases), cases.map(expected));
  });

  it('sums to the same total however the time is cut', async () => {
    const price = { quantity: 3, price: 33_333, startedMs: 1_000, endedMs: null };
    const cuts = fc.sample(fc.array(fc.integer({ min: 1_000, max: 10 ** 9 }), { minLength: 2 }), { seed: 15 });
    for (const cut of cuts.map((instants) => [1_000, ...instants.sort((a, b) => a - b), 10 ** 9])) {
      const amounts = (await ask(cut.map((untilMs) => ({ ...price, untilMs })))).map(({ amounts: [vcpu] }) =>
        BigInt(vcpu ?? -1),
      );
      const parts = amounts.slice(1).map((amount, index) => amount - (amounts[index] ?? 0n));
      assert(parts.every((part) => part >= 0n));
      assert.equal(
        parts.reduce((sum, part) => sum + part),
        (33_333n * 3n * (10n ** 9n - 1_000n)) / HOUR_MS,
      );
    }
  });

  it('counts quantities in unit-hours, rounded down to six decimals', () => {
    assert.equal(formatQuantity('vcpu', 3_600_000n), '1.000000');
    assert.equal(formatQuantity('vcpu', 2n * 3_599_999n), '1.999999');
    assert.equal(formatQuantity('memory', 512n * 3_600_000n), '0.500000');
    assert.equal(formatQuantity('snapshot', 1n), '0.000000');
    assert.equal(formatQuantity('storage', 10n * 720n * 3_600_000n), '7200.000000');
  });
});
