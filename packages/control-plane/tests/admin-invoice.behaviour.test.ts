// Tests invoices: they equal the ledger and an independent computation from the meters, to the micro-euro, and
// each month begins with the closing balance of the month before.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { NewAccount } from '@sandbar/contract/admin.ts';
import type { Invoice } from '@sandbar/contract/admin-billing.ts';
import { type LedgerKind, USAGE_KINDS, type UsageKind } from '@sandbar/contract/billing.ts';
import fc from 'fast-check';
import { sql } from 'kysely';
import { chargeAccounts } from '../src/billing/charge.ts';
import { formatEur, parseEur } from '../src/billing/money.ts';
import { setPrices } from '../src/billing/prices.ts';
import { asOwner } from '../src/db/database.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { callAdmin } from './support/admin.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { plane } = bed;
const { db } = plane.app;
const admin = <T = { code: string; detail: string }>(path: string, body?: object) =>
  callAdmin<T>(plane.app.config.adminSocket, `/admin/accounts${path}`, body);
const ask = (id: string, month: string) =>
  admin<Invoice & { code: string; detail: string }>(`/${id}/invoice?month=${month}`);
const invoiceOf = async (id: string, month: string): Promise<Invoice> => {
  const { status, json } = await ask(id, month);
  assert.equal(status, 200, json.detail);
  return json;
};

const HOUR_MS = 3_600_000n;
const PRICES = { vcpu: 50_000, memory: 16_000, storage: 200, snapshot: 7 };
const DEARER = { ...PRICES, vcpu: 60_001, snapshot: 0 };
type PriceOf = Record<UsageKind, number>;
const listOf = ({ vcpu, memory, storage, snapshot }: PriceOf) => ({
  vcpu_hour_micros: vcpu,
  memory_gib_hour_micros: memory,
  storage_gib_hour_micros: storage,
  snapshot_gib_hour_micros: snapshot,
});
const lists = new Map<number, PriceOf>();
for (const list of [PRICES, DEARER]) lists.set(await inTransaction(db, (tx) => setPrices(tx, listOf(list))), list);
const [cheap = 0, dear = 0] = lists.keys();

type Meter = { from: number; to: number; priceId: number } & Record<UsageKind, number>;
type Event = { at: number; credit?: { kind: LedgerKind; micros: number } };

/** Makes an account and applies the events to its wallet, in the order of their times. */
async function makePast(meters: readonly Meter[], events: readonly Event[]): Promise<string> {
  const { json } = await admin<NewAccount>('', { email: `${randomUUID()}@example.test`, billing_mode: 'prepaid' });
  const id = json.account_id;
  const begin = new Date('2026-01-01T00:00:00Z');
  await db.updateTable('accounts').set({ charged_until: begin, activity_at: begin }).where('id', '=', id).execute();
  for (const { from, to, priceId, vcpu, memory, storage, snapshot } of meters) {
    await db
      .insertInto('meters')
      .values({
        ...{ account_id: id, resource_kind: 'machine', resource_id: randomUUID(), metadata: '{}', price_id: priceId },
        ...{ vcpus: vcpu, memory_mb: memory, storage_gb: storage, snapshot_mb: snapshot },
        ...{ started_at: new Date(from), ended_at: new Date(to) },
      })
      .execute();
  }
  for (const event of events) await inTransaction(db, (tx) => happen(tx, id, event));
  return id;
}

async function happen(tx: Parameters<typeof chargeAccounts>[0], id: string, { at, credit }: Event): Promise<void> {
  const activity_at = new Date(at);
  await tx.updateTable('accounts').set({ activity_at }).where('id', '=', id).execute();
  if (!credit) {
    await chargeAccounts(tx, [id]);
    return;
  }
  const { balance_micros } = await tx
    .updateTable('accounts')
    .set({ balance_micros: sql<number>`balance_micros + ${credit.micros}::bigint` })
    .where('id', '=', id)
    .returning('balance_micros')
    .executeTakeFirstOrThrow();
  const amounts = { amount_micros: credit.micros, corrections_micros: -credit.micros, balance_micros };
  const entry = { id: randomUUID(), account_id: id, kind: credit.kind, ...amounts, created_at: activity_at };
  await tx.insertInto('ledger').values(entry).execute();
}

/**
 * What a meter has cost up to an instant, in BigInt. It follows the rule in docs/billing.md, not the service's code.
 */
function costUpTo({ from, to, priceId, ...quantities }: Meter, kind: UsageKind, instant: number): bigint {
  const ms = BigInt(Math.max(0, Math.min(to, instant) - from));
  const unit = kind === 'memory' || kind === 'snapshot' ? 1024n : 1n;
  return (BigInt(lists.get(priceId)?.[kind] ?? 0) * BigInt(quantities[kind]) * ms) / (unit * HOUR_MS);
}

const MONTHS = ['2026-01', '2026-02', '2026-03', '2026-04'];
const at = (text: string) => Date.parse(text);
const sumOf = (amounts: string[]) => amounts.reduce((sum, amount) => sum + parseEur(amount), 0);

describe('an invoice', () => {
  it('has the opening balance, money in and out, use with its prices, and the closing balance', async () => {
    const machine = { vcpu: 2, memory: 2048, storage: 10, snapshot: 0 };
    const meters: Meter[] = [
      { ...machine, from: at('2026-02-10T00:00:00Z'), to: at('2026-02-10T10:00:00Z'), priceId: cheap },
      { ...machine, from: at('2026-02-10T10:00:00Z'), to: at('2026-02-10T11:00:00Z'), priceId: dear },
      {
        ...machine,
        vcpu: 0,
        memory: 0,
        from: at('2026-02-10T11:00:00Z'),
        to: at('2026-02-11T11:00:00Z'),
        priceId: dear,
      },
    ];
    const id = await makePast(meters, [
      { at: at('2026-01-31T23:59:59.999Z'), credit: { kind: 'top-up', micros: 1_000_000 } },
      { at: at('2026-02-01T00:00:00Z'), credit: { kind: 'bonus', micros: 500_000 } },
      { at: at('2026-02-05T00:00:00Z'), credit: { kind: 'top-up', micros: 10_000_000 } },
      { at: at('2026-02-06T00:00:00Z'), credit: { kind: 'top-up', micros: 5_000_000 } },
      { at: at('2026-02-10T05:00:00Z') },
      { at: at('2026-02-12T00:00:00Z') },
      { at: at('2026-02-28T23:59:59.999Z'), credit: { kind: 'refund', micros: -1 } },
      { at: at('2026-03-01T00:00:00Z'), credit: { kind: 'correction', micros: 3 } },
    ]);
    const invoice = await invoiceOf(id, '2026-02');
    assert.deepEqual(invoice, {
      account_id: id,
      email: invoice.email,
      billing_mode: 'prepaid',
      currency: 'EUR',
      month: '2026-02',
      from: '2026-02-01T00:00:00.000Z',
      to: '2026-03-01T00:00:00.000Z',
      is_final: true,
      opening: '1.000000',
      closing: formatEur(1_000_000 + 15_500_000 - 1 - 1_000_000 - 120_002 - 352_000 - 20_000 - 2_000 - 48_000),
      money: [
        { kind: 'bonus', entries: 1, amount: '0.500000' },
        { kind: 'top-up', entries: 2, amount: '15.000000' },
        { kind: 'refund', entries: 1, amount: '-0.000001' },
      ],
      use: [
        { kind: 'vcpu', unit: 'vcpu_hour', quantity: '20.000000', price: '0.050000', amount: '-1.000000' },
        { kind: 'vcpu', unit: 'vcpu_hour', quantity: '2.000000', price: '0.060001', amount: '-0.120002' },
        { kind: 'memory', unit: 'gib_hour', quantity: '22.000000', price: '0.016000', amount: '-0.352000' },
        { kind: 'storage', unit: 'gib_hour', quantity: '350.000000', price: '0.000200', amount: '-0.070000' },
      ],
    });
    assert.equal((await invoiceOf(id, '2026-01')).closing, '1.000000');
    assert.equal((await invoiceOf(id, '2026-03')).opening, invoice.closing);
  });

  it('equals the ledger and the meters exactly for random pasts, and each month begins where the last one ended', async () => {
    const [begin, end] = [at('2026-01-01T00:00:00Z'), at('2026-05-01T00:00:00Z')];
    const instant = fc.integer({ min: begin + 1, max: end - 1 });
    const meter = fc
      .record({
        span: fc.tuple(instant, instant),
        priceId: fc.constantFrom(0, cheap, dear),
        vcpu: fc.nat(8),
        memory: fc.nat(20_000),
        storage: fc.nat(100),
        snapshot: fc.nat(5_000),
      })
      .map(({ span: [a, b], ...rest }) => ({ ...rest, from: Math.min(a, b), to: Math.max(a, b) }));
    const credit = fc.record({
      kind: fc.constantFrom('top-up', 'bonus', 'correction', 'refund', 'dispute') as fc.Arbitrary<LedgerKind>,
      micros: fc.integer({ min: -30_000_000, max: 60_000_000 }).filter((micros) => micros !== 0),
    });
    const event = fc.record({ at: instant, credit: fc.option(credit, { nil: undefined, freq: 4 }) });
    const past = fc.tuple(
      fc.array(meter, { maxLength: 8 }),
      fc.uniqueArray(event, { maxLength: 25, selector: ({ at }) => at }),
    );
    await fc.assert(
      fc.asyncProperty(past, async ([meters, unordered]) => {
        const events = unordered
          .toSorted((a, b) => a.at - b.at)
          .map(({ at, credit }) => (credit ? { at, credit } : { at }));
        const id = await makePast(meters, events);
        const invoices = await Promise.all(MONTHS.map((month) => invoiceOf(id, month)));
        invoices.reduce((before, { opening, closing, money, use }) => {
          assert.equal(opening, before);
          assert.equal(sumOf([opening, ...[...money, ...use].map(({ amount }) => amount)]), parseEur(closing));
          return closing;
        }, '0.000000');
        // All charges together must be what the meters cost until the last charge. Compute this from the meters alone.
        const last = Math.max(begin, ...events.filter(({ credit }) => !credit).map(({ at }) => at));
        for (const kind of USAGE_KINDS) {
          const expected = meters.reduce((sum, one) => sum + costUpTo(one, kind, last), 0n);
          const lines = invoices.flatMap(({ use }) => use.filter((line) => line.kind === kind));
          assert.equal(0 - sumOf(lines.map(({ amount }) => amount)), Number(expected), kind);
        }
        const { balance_micros } = await db
          .selectFrom('accounts')
          .select('balance_micros')
          .where('id', '=', id)
          .executeTakeFirstOrThrow();
        assert.equal(invoices.at(-1)?.closing, formatEur(balance_micros));
      }),
      { numRuns: 25, endOnFailure: true },
    );
  });

  it('of a month without entries carries the balance over', async () => {
    const id = await makePast([], [{ at: at('2026-01-05T00:00:00Z'), credit: { kind: 'bonus', micros: 7 } }]);
    const { opening, closing, money, use } = await invoiceOf(id, '2026-03');
    assert.deepEqual([opening, closing, money, use], ['0.000007', '0.000007', [], []]);
    const before = await invoiceOf(id, '2025-12');
    assert.deepEqual([before.opening, before.closing], ['0.000000', '0.000000']);
  });

  it('of the present month is not final', async () => {
    const { json } = await admin<NewAccount>('', { email: 'present@example.test', credit_eur: '25' });
    const { rows } = await sql<{ month: string }>`
      select to_char(now() at time zone 'UTC', 'YYYY-MM') as month`.execute(db);
    const invoice = await invoiceOf(json.account_id, rows[0]?.month ?? '');
    assert.deepEqual([invoice.is_final, invoice.closing], [false, '25.000000']);
    assert.deepEqual(invoice.money, [{ kind: 'bonus', entries: 1, amount: '25.000000' }]);
  });

  it('can be read for a deleted account too', async () => {
    const id = await makePast([], [{ at: at('2026-01-05T00:00:00Z'), credit: { kind: 'bonus', micros: 7 } }]);
    await admin(`/${id}/delete`, {});
    assert.equal((await invoiceOf(id, '2026-01')).closing, '0.000007');
  });

  it('of a malformed or future month is 400 and names the field; of an absent account it is 404', async () => {
    const id = await makePast([], []);
    for (const month of [
      '2026-13',
      '2026-00',
      '2026-1',
      '2026',
      '2026-10-01',
      '26-10',
      '',
      'x',
      '2026-10%0a',
      '3999-12',
    ]) {
      const { status, json } = await ask(id, month);
      assert.deepEqual([status, json.code], [400, 'validation_error'], month);
      assert.match(json.detail, /^month must /);
    }
    assert.equal((await ask(randomUUID(), '2026-10')).status, 404);
  });

  it('is refused when the meters do not give what the ledger has charged, or the balances do not add up', async () => {
    const meters = [{ ...{ vcpu: 1, memory: 0, storage: 0, snapshot: 0 }, from: at('2026-02-10T00:00:00Z') }];
    const whole = meters.map((meter) => ({ ...meter, to: at('2026-02-11T00:00:00Z'), priceId: cheap }));
    const id = await makePast(whole, [{ at: at('2026-02-12T00:00:00Z') }]);
    assert.equal((await invoiceOf(id, '2026-02')).closing, '-1.200000');
    const asTheOwner = (statement: ReturnType<typeof sql>) =>
      asOwner(bed.databaseUrl, plane.app.log, (owner) => statement.execute(owner));
    await asTheOwner(sql`update meters set vcpus = 2 where account_id = ${id}`);
    const { status, json } = await ask(id, '2026-02');
    assert.deepEqual([status, json.code], [409, 'conflict']);
    assert.match(json.detail, /its meters do not agree.*sandbar doctor/);
    await asTheOwner(sql`update meters set vcpus = 1 where account_id = ${id}`);
    await asTheOwner(sql`update ledger set balance_micros = 1 where account_id = ${id}`);
    assert.match((await ask(id, '2026-02')).json.detail, /its balances do not agree/);
  });
});
