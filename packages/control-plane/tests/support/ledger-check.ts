// Checks an account's meters, ledger and balance against a recount from its feed (recount.ts). Everything must agree to
// the millisecond and to the micro-euro. Call it at any moment: it reads one snapshot of the database.
import assert from 'node:assert/strict';
import { USAGE_KINDS } from '@sandbar/contract/billing.ts';
import type { Selectable } from 'kysely';
import type { LedgerTable, MeterTable } from '../../src/db/billing-tables.ts';
import type { Db } from '../../src/db/database.ts';
import type { AccountRow } from '../../src/db/tables.ts';
import { costUntil, type FeedEntry, type Part, type PriceList, type Use, usesOf } from './recount.ts';
import { readStateLog, type StateChange } from './state-log.ts';

type Meter = Selectable<MeterTable>;
type Charge = Selectable<LedgerTable> & { charged_from: Date; charged_to: Date; meter_ids: number[] };

/**
 * A price list, and when it may have been in force for the account: later than `after` and up to `until`, instants of
 * the account in milliseconds. A change of prices takes effect at some moment between its request and the end of its
 * work, so the spans of two lists overlap a little.
 */
export type PriceSpan = { id: number; list: PriceList; after: number; until: number };

/** What the test did to the account. */
export type Deeds = {
  accountId: string;
  /** How the account paid when it was made. */
  billingMode: AccountRow['billing_mode'];
  prices: readonly PriceSpan[];
  /** The amounts of all credits and withdrawals by their references, in micro-euro. */
  credits: ReadonlyMap<string, number>;
};

export type Books = {
  account: AccountRow;
  /** What the account has used, each part at one price. */
  parts: Part[];
  /** All that was charged, in micro-euro. */
  charged: bigint;
  /** Money in and out of the wallet except charges, oldest first. */
  credits: { at: number; micros: bigint }[];
};

/** Fails when anything disagrees. Returns what the account has used and paid. */
export async function checkLedger(db: Db, deeds: Deeds): Promise<Books> {
  const { account, feed, changes, meters, ledger } = await readBooks(db, deeds.accountId);
  const uses = usesOf(feed, changes);
  const parts = splitByPrice(uses, meters, deeds, changes);
  checkRows(ledger, account);
  checkCredits(ledger, deeds.credits);
  checkCharges(ledger.filter(isCharge), parts, account);
  const credits = ledger
    .filter(({ kind }) => kind !== 'charge')
    .map((row) => ({ at: row.created_at.getTime(), micros: BigInt(row.amount_micros) }));
  const told = new Set(feed.map(({ at }) => at));
  assert.equal(told.size, feed.length, 'each entry of the feed has an instant of its own');
  for (const { at } of credits) assert(!told.has(at), 'a credit has an instant of its own');
  const charged = -ledger.filter(isCharge).reduce((sum, row) => sum + BigInt(row.amount_micros), 0n);
  return { account, parts: parts.map(({ part }) => part), charged, credits };
}

/** Reads everything from one snapshot of the database. */
async function readBooks(db: Db, accountId: string) {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (tx) => {
      const of = <T extends 'ledger' | 'meters' | 'activity'>(table: T) =>
        tx
          .selectFrom(table as 'ledger')
          .selectAll()
          .where('account_id', '=', accountId);
      const account = await tx.selectFrom('accounts').selectAll().where('id', '=', accountId).executeTakeFirstOrThrow();
      const entries = await tx
        .selectFrom('activity')
        .select(['action', 'machine_id', 'metadata', 'created_at'])
        .where('account_id', '=', accountId)
        .orderBy('created_at')
        .execute();
      return {
        account,
        feed: entries.map(({ created_at, ...entry }): FeedEntry => ({ ...entry, at: created_at.getTime() })),
        changes: await readStateLog(tx, accountId),
        meters: (await tx
          .selectFrom('meters')
          .selectAll()
          .where('account_id', '=', accountId)
          .orderBy('started_at')
          .orderBy('id')
          .execute()) as Meter[],
        ledger: await of('ledger').orderBy('created_at').orderBy('kind').execute(),
      };
    });
}

type Priced = { part: Part; meter: Meter };

/**
 * Splits each use where its price changed. The feed does not have these instants, so they come from the meters, and
 * each of them must lie in the span of a change that the test made. In all else, the meters must equal the uses.
 */
function splitByPrice(
  uses: readonly Use[],
  meters: readonly Meter[],
  deeds: Deeds,
  changes: readonly StateChange[],
): Priced[] {
  const left = new Map<string, Meter[]>();
  for (const meter of meters) left.set(meter.resource_id, [...(left.get(meter.resource_id) ?? []), meter]);
  const modes = modesOf(deeds, changes);
  const priced = uses.flatMap((use) => {
    const own = left.get(use.resourceId) ?? [];
    const parts: Priced[] = [];
    let at = use.from;
    while (at < use.until) {
      const meter = own.shift();
      assert(meter, `${use.resourceId} was in use from ${use.from}, but not metered at ${at}`);
      assert.equal(meter.started_at.getTime(), at, `${use.resourceId} is metered without a gap, as the feed says`);
      const until = Number(meter.ended_at);
      assert(until > at, 'a meter ends after its beginning');
      assert(until <= use.until, `${use.resourceId} was in use until ${use.until}, but metered until ${until}`);
      const { vcpus, memory_mb, storage_gb, snapshot_mb, metadata } = meter;
      assert.deepEqual({ vcpus, memory_mb, storage_gb, snapshot_mb }, use.size, `the size of ${use.resourceId}`);
      assert.deepEqual(metadata, use.metadata, `the metadata of ${use.resourceId}`);
      assert.notEqual(meter.price_id, parts.at(-1)?.meter.price_id, 'a meter is split only when its price changes');
      parts.push({ meter, part: { size: use.size, prices: priceOf(meter, deeds, modes), from: at, until } });
      at = until;
    }
    return parts;
  });
  const spare = [...left.values()].flat();
  assert.deepEqual(spare, [], 'nothing is metered that the feed does not tell');
  return priced;
}

type ModeSpan = { mode: AccountRow['billing_mode']; from: number; until: number };

function modesOf({ billingMode }: Deeds, changes: readonly StateChange[]): ModeSpan[] {
  const spans: ModeSpan[] = [{ mode: billingMode, from: 0, until: Number.POSITIVE_INFINITY }];
  for (const { table_name, after, at } of changes) {
    if (table_name !== 'accounts') continue;
    const last = spans.at(-1);
    if (last) last.until = at.getTime();
    spans.push({ mode: after?.billing_mode as ModeSpan['mode'], from: at.getTime(), until: Number.POSITIVE_INFINITY });
  }
  return spans;
}

const FREE: PriceList = {
  ...{ vcpu_hour_micros: 0, memory_gib_hour_micros: 0, storage_gib_hour_micros: 0, snapshot_gib_hour_micros: 0 },
};

/** The prices of a meter, which must have been in force for the account all the time that the meter ran. */
function priceOf({ price_id, started_at, ended_at }: Meter, { prices }: Deeds, modes: readonly ModeSpan[]): PriceList {
  const [from, until] = [started_at.getTime(), Number(ended_at)];
  const mode = modes.find((span) => span.from <= from && from < span.until);
  assert(mode && until <= mode.until, 'a meter ends when the billing mode changes');
  assert.equal(price_id === 0, mode.mode === 'unmetered', 'use is free for unmetered accounts only');
  if (price_id === 0) return FREE;
  const span = prices.find(({ id }) => id === price_id);
  assert(span, `price list ${price_id} is known`);
  assert(span.after < from, `price list ${price_id} was in force at ${from}, after ${span.after}`);
  assert(until <= span.until, `price list ${price_id} was out of force from ${span.until}, but used until ${until}`);
  return span.list;
}

/** Checks that each transaction sums to zero, and that each balance is the sum of the amounts up to it. */
function checkRows(ledger: readonly Selectable<LedgerTable>[], account: AccountRow): void {
  let balance = 0n;
  let previous = Number.NEGATIVE_INFINITY;
  for (const row of ledger) {
    const books = Object.entries(row).filter(([name]) => name.endsWith('_micros') && name !== 'balance_micros');
    assert.equal(books.length, 8);
    assert.equal(
      books.reduce((sum, [, micros]) => sum + BigInt(micros as number), 0n),
      0n,
      'a transaction sums to zero',
    );
    balance += BigInt(row.amount_micros);
    assert.equal(BigInt(row.balance_micros), balance, 'the balance of an entry is the sum of all until it');
    assert(row.created_at.getTime() > previous, 'entries have different instants');
    previous = row.created_at.getTime();
  }
  assert.equal(BigInt(account.balance_micros), balance, 'the balance of the account is the sum of its ledger');
  assert.equal(account.empty_since === null, balance > 0n, 'empty_since says whether the wallet is empty');
}

function checkCredits(ledger: readonly Selectable<LedgerTable>[], credits: ReadonlyMap<string, number>): void {
  const found = ledger.filter((row) => row.kind !== 'charge').map((row) => [row.reference, row.amount_micros]);
  assert.deepEqual(found.sort(), [...credits].sort(), 'each credit is in the ledger once');
}

const isCharge = (row: Selectable<LedgerTable>): row is Charge => row.kind === 'charge';

/** Checks, for each charge and kind, that all charges so far sum to what the parts have cost up to its end. */
function checkCharges(charges: readonly Charge[], priced: readonly Priced[], account: AccountRow): void {
  const parts = priced.map(({ part }) => part);
  const sums = { vcpu: 0n, memory: 0n, storage: 0n, snapshot: 0n };
  let previous = Number.NEGATIVE_INFINITY;
  for (const row of charges) {
    const [from, to] = [row.charged_from.getTime(), row.charged_to.getTime()];
    assert(previous <= from && from < to, 'charges cover different times, in their order');
    assert.equal(row.created_at.getTime(), to, 'a charge is made at the end of the time that it covers');
    assert(row.amount_micros < 0, 'a charge takes money');
    for (const kind of USAGE_KINDS) sums[kind] += BigInt(row[`sales_${kind}_micros`]);
    assert.deepEqual(sums, costUntil(parts, to), 'what was charged is what was used');
    const paying = priced.filter(({ part }) => sum(costUntil([part], to)) > sum(costUntil([part], previous)));
    assert.deepEqual(
      row.meter_ids,
      paying.map(({ meter }) => meter.id).sort((a, b) => a - b),
      'a charge names its meters',
    );
    previous = to;
  }
  assert(previous <= account.charged_until.getTime(), 'the account is charged until its last charge at least');
  assert(account.charged_until <= account.activity_at, 'nothing is charged ahead');
  const ends = priced.filter(({ meter }) => meter.price_id !== 0).map(({ part }) => part.until);
  const lastEnd = Math.max(0, ...ends.filter(Number.isFinite));
  assert(lastEnd <= account.charged_until.getTime(), 'each change of what is used is charged at once');
  assert.deepEqual(sums, costUntil(parts, account.charged_until.getTime()), 'all is charged up to charged_until');
}

const sum = (sums: ReturnType<typeof costUntil>): bigint => USAGE_KINDS.reduce((all, kind) => all + sums[kind], 0n);
