// Tests of the wallet: amounts are exact, and the entries of the ledger add up to the balance.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { insertAccount } from '../src/accounts/store.ts';
import { addEntry, type Entry } from '../src/billing/ledger.ts';
import { formatEur, parseEur } from '../src/billing/money.ts';
import { startTestBed } from './support/test-bed.ts';

const { db } = (await startTestBed()).plane.app;
const credit = (entry: Entry) => db.transaction().execute((tx) => addEntry(tx, entry));
const balanceOf = async (id: string) =>
  (await db.selectFrom('accounts').select('balance_micros').where('id', '=', id).executeTakeFirstOrThrow())
    .balance_micros;
const tierOf = async (id: string) =>
  (await db.selectFrom('accounts').select('tier').where('id', '=', id).executeTakeFirstOrThrow()).tier;

describe('money', () => {
  it('is exact in both directions', () => {
    const pairs: [number, string][] = [
      [0, '0.000000'],
      [1, '0.000001'],
      [-1, '-0.000001'],
      [12_340_000, '12.340000'],
      [-1_500_000, '-1.500000'],
      [290_000, '0.290000'],
      [9_007_199_254_740_991, '9007199254.740991'],
    ];
    for (const [micros, text] of pairs) {
      assert.equal(formatEur(micros), text);
      assert.equal(parseEur(text), micros);
    }
    assert.deepEqual([parseEur('25'), parseEur('0.1'), parseEur('1.15')], [25_000_000, 100_000, 1_150_000]);
    assert(Object.is(parseEur('-0'), 0));
  });

  it('refuses what is no amount', () => {
    for (const text of [
      '',
      '.',
      '1.',
      '.5',
      '+1',
      '1e3',
      '0x10',
      '1,5',
      ' 1',
      '1\n',
      '1.0000001',
      '9007199254.740992',
    ]) {
      assert.throws(() => parseEur(text), { code: 'validation_error' }, JSON.stringify(text));
    }
    assert.throws(() => formatEur(0.5), RangeError);
  });
});

describe('the ledger', () => {
  it('takes rows whose books sum to zero only, and the application may not change or delete any', async () => {
    const accountId = await insertAccount(db, { email: 'books@example.test', tier: 'free', billingMode: 'prepaid' });
    await credit({ accountId, kind: 'bonus', amountMicros: 7, note: '' });
    const row = await db.selectFrom('ledger').selectAll().where('account_id', '=', accountId).executeTakeFirstOrThrow();
    assert.deepEqual([row.amount_micros, row.bonuses_micros, row.balance_micros], [7, -7, 7]);
    const unbalanced = sql`insert into ledger (id, account_id, kind, amount_micros, bonuses_micros)
      values (gen_random_uuid(), ${accountId}, 'bonus', 7, -6)`;
    await assert.rejects(unbalanced.execute(db), /ledger_sums_to_zero/);
    for (const forbidden of [
      sql`update ledger set amount_micros = 8, bonuses_micros = -8`,
      sql`delete from ledger`,
      sql`truncate ledger`,
      sql`update prices set vcpu_hour_micros = 0`,
      sql`delete from prices`,
      sql`update meters set started_at = now()`,
      sql`update meters set vcpus = 0`,
      sql`delete from meters`,
    ]) {
      await assert.rejects(forbidden.execute(db), /permission denied/);
    }
  });

  it('records an entry with the same reference once, also when it comes many times at once', async () => {
    const accountId = await insertAccount(db, { email: 'once@example.test', tier: 'free', billingMode: 'prepaid' });
    const entry = { accountId, kind: 'top-up', amountMicros: 5_000_000, reference: 'payment 1', note: '' } as const;
    const recorded = await Promise.all(Array.from({ length: 10 }, () => credit(entry)));
    assert.equal(recorded.filter(Boolean).length, 1);
    assert.equal(await balanceOf(accountId), 5_000_000);
  });

  it('sums up to the balance, and only a top-up leaves the free tier', async () => {
    const accountId = await insertAccount(db, { email: 'wallet@example.test', tier: 'free', billingMode: 'prepaid' });
    assert.equal(await balanceOf(accountId), 0);
    await credit({ accountId, kind: 'bonus', amountMicros: 25_000_000, note: 'first card' });
    assert.deepEqual([await balanceOf(accountId), await tierOf(accountId)], [25_000_000, 'free']);
    await credit({ accountId, kind: 'top-up', amountMicros: 1, note: '' });
    assert.deepEqual([await balanceOf(accountId), await tierOf(accountId)], [25_000_001, 'payg']);
  });

  it('a later top-up leaves the tier that the operator set, and no top-up lowers one', async () => {
    const accountId = await insertAccount(db, { email: 'moved@example.test', tier: 'enterprise' });
    await credit({ accountId, kind: 'top-up', amountMicros: 5, note: '' });
    assert.equal(await tierOf(accountId), 'enterprise');
    await db.updateTable('accounts').set({ tier: 'free' }).where('id', '=', accountId).execute();
    await credit({ accountId, kind: 'top-up', amountMicros: 5, note: '' });
    assert.equal(await tierOf(accountId), 'free');
  });

  it('refuses an amount that is not above zero, and a failed credit leaves the tier', async () => {
    const accountId = await insertAccount(db, { email: 'none@example.test', tier: 'free' });
    for (const amountMicros of [0, -1, 0.5, Number.NaN]) {
      await assert.rejects(credit({ accountId, kind: 'top-up', amountMicros, note: '' }), { code: 'validation_error' });
    }
    await assert.rejects(
      db.transaction().execute(async (tx) => {
        await addEntry(tx, { accountId, kind: 'top-up', amountMicros: 5, note: '' });
        throw new Error('later');
      }),
      /later/,
    );
    assert.deepEqual([await balanceOf(accountId), await tierOf(accountId)], [0, 'free']);
  });
});
