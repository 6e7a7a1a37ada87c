// Tests of the ledger as clients see it: real charges of machines that ran on the fake host, and their lines. Also the
// tests of CSV answers.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import {
  type LedgerDetails,
  type LedgerEntry,
  type LedgerList,
  USAGE_KINDS,
  type Usage,
} from '@sandbar/contract/billing.ts';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { PRICE_MAX_MICROS, setPrices } from '../src/billing/prices.ts';
import { chargeDueAccounts } from '../src/billing/round.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { startTestBed } from './support/test-bed.ts';

// The service's own rounds would charge between the steps of the tests.
const bed = await startTestBed({ timing: { chargeMs: 1_000_000_000 } });
const { api, plane } = bed;
const { app } = plane;
const { db } = app;
const FORMULA = '=HYPERLINK("http://evil.test")';

let accountId: string;
let key: string;

const micros = (amount: string) => BigInt(amount.replace('.', ''));
const sum = (amounts: string[]) => amounts.reduce((total, amount) => total + micros(amount), 0n);

/** Charges all accounts now, as a round does. */
const charge = () =>
  chargeDueAccounts({ ...app, config: { ...app.config, timing: { ...app.config.timing, chargeMs: 0 } } });

async function ledger(query = ''): Promise<LedgerList> {
  const { status, json, text } = await api<LedgerList>('GET', `/v1/billing/ledger${query}`, { key });
  assert.equal(status, 200, text);
  return json;
}

/** When the first meter of the account began. */
async function beginning(): Promise<string> {
  const meters = db.selectFrom('meters').select('started_at').where('account_id', '=', accountId).orderBy('id');
  return (await meters.executeTakeFirstOrThrow()).started_at.toISOString();
}

before(async () => {
  accountId = await insertAccount(db, { email: 'payer@example.test', tier: 'enterprise', billingMode: 'prepaid' });
  key = await insertKey(db, accountId, 'full', 'key');
  // At these prices, milliseconds cost many micro-euro.
  const prices = {
    vcpu_hour_micros: PRICE_MAX_MICROS - 1,
    memory_gib_hour_micros: PRICE_MAX_MICROS - 7,
    storage_gib_hour_micros: 33_333_333,
    snapshot_gib_hour_micros: PRICE_MAX_MICROS,
  };
  await inTransaction(db, async (tx) => {
    await setPrices(tx, prices);
    await addEntry(tx, { accountId, kind: 'top-up', amountMicros: 9_000_000_000, reference: 'pay-1', note: FORMULA });
    await addEntry(tx, { accountId, kind: 'correction', amountMicros: -5, note: 'a "quoted", two\nlines' });
  });
  const create = async (body: object) => (await api('POST', '/v1/machines', { key, body })).json.id as string;
  const first = await create({ vcpus: 2, memory_mb: 768, rootfs_size_gb: 3, metadata: { team: 'a' } });
  await charge();
  await create({ vcpus: 1, memory_mb: 512, rootfs_size_gb: 5 });
  await api('POST', '/v1/volumes', { key, body: { size_gb: 7 } });
  await charge();
  await api('POST', `/v1/machines/${first}/snapshots`, { key });
  await api('POST', `/v1/machines/${first}/stop`, { key });
  await charge();
  await api('POST', `/v1/machines/${first}/start`, { key });
  await api('DELETE', `/v1/machines/${first}?delete_snapshots=true`, { key });
  await charge();
});

describe('the ledger', () => {
  it('lists every change of the wallet, newest first, with the balance after it', async () => {
    const { entries, next_cursor } = await ledger('?page_size=1000');
    assert.equal(next_cursor, '');
    assert(entries.length >= 8, `${entries.length} entries`);
    assert.deepEqual(
      entries
        .map(({ created_at }) => created_at)
        .sort()
        .reverse(),
      entries.map((e) => e.created_at),
    );
    let balance = 0n;
    for (const entry of entries.toReversed()) {
      balance += micros(entry.amount);
      assert.equal(micros(entry.balance), balance);
    }
    const [account] = await db.selectFrom('accounts').select('balance_micros').where('id', '=', accountId).execute();
    assert.equal(balance, BigInt(account?.balance_micros ?? 0));
    assert.deepEqual(
      entries.slice(-2).map(({ kind, amount, by_kind, charged_to, reference, note }) => ({
        ...{ kind, amount, by_kind, charged_to, reference, note },
      })),
      [
        {
          ...{ kind: 'correction', amount: '-0.000005', by_kind: null, charged_to: null, reference: null },
          note: 'a "quoted", two\nlines',
        },
        { kind: 'top-up', amount: '9000.000000', by_kind: null, charged_to: null, reference: 'pay-1', note: FORMULA },
      ],
    );
  });

  it('has charges that equal the sum of their amounts by kind, and the sum of their lines', async () => {
    const { entries } = await ledger('?kind=charge&page_size=1000');
    let lineCount = 0;
    for (const entry of entries) {
      assert(entry.by_kind && entry.charged_from && entry.charged_to);
      assert.equal(sum(Object.values(entry.by_kind)), -micros(entry.amount));
      const { json } = await api<LedgerDetails>('GET', `/v1/billing/ledger/${entry.id}`, { key });
      const { lines, ...same } = json;
      assert.deepEqual(same, entry);
      for (const kind of USAGE_KINDS) {
        const amounts = lines.filter((line) => line.kind === kind).map(({ amount }) => amount);
        assert.equal(sum(amounts), micros(entry.by_kind[kind]));
      }
      for (const { from, to, kind, quantity, price, amount } of lines) {
        assert(entry.charged_from <= from && from < to && to <= entry.charged_to);
        // The price times the quantity, which is rounded down, is at most the amount and nearly as much.
        const product = (micros(price) * micros(quantity)) / 1_000_000n;
        const difference = micros(amount) - product;
        assert(difference >= -1n && difference <= micros(price) / 1_000_000n + 1n, `${kind} ${difference}`);
      }
      lineCount += lines.length;
    }
    assert(lineCount > entries.length * 3);
    assert.deepEqual(await linesOf((await ledger('?kind=top-up')).entries[0]), []);
  });

  const linesOf = async (entry: LedgerEntry | undefined) =>
    (await api<LedgerDetails>('GET', `/v1/billing/ledger/${entry?.id}`, { key })).json.lines;

  it('charges in total exactly what usage reports, by every grouping', async () => {
    await charge();
    const charges = (await ledger('?kind=charge&page_size=1000')).entries;
    const from = await beginning();
    for (const group_by of ['kind', 'day', 'resource', 'metadata.team']) {
      const query = new URLSearchParams({ from, to: charges[0]?.charged_to ?? '', group_by });
      const { json } = await api<Usage>('GET', `/v1/billing/usage?${query}`, { key });
      assert.equal(micros(json.total), -sum(charges.map(({ amount }) => amount)));
      for (const kind of USAGE_KINDS) {
        const amounts = json.items.filter((item) => item.kind === kind).map(({ amount }) => amount);
        assert.equal(sum(amounts), sum(charges.map(({ by_kind }) => by_kind?.[kind] ?? '0.000000')));
      }
    }
    // A range that begins and ends with a charge costs what that charge says.
    const [entry, previous] = charges;
    const query = new URLSearchParams({ from: previous?.charged_to ?? '', to: entry?.charged_to ?? '' });
    const { json } = await api<Usage>('GET', `/v1/billing/usage?${query}`, { key });
    assert.equal(micros(json.total), -micros(entry?.amount ?? ''));
  });

  it('has every entry once in its pages', async () => {
    const all = (await ledger('?page_size=1000')).entries;
    const read: LedgerEntry[] = [];
    let cursor: string | undefined;
    while (cursor !== '') {
      const page = await ledger(`?page_size=3${cursor === undefined ? '' : `&cursor=${cursor}`}`);
      read.push(...page.entries);
      cursor = page.next_cursor;
    }
    assert.deepEqual(read, all);
    const { next_cursor } = await ledger('?page_size=3');
    for (const query of [`?kind=charge&cursor=${next_cursor}`, '?cursor=abc']) {
      const { status, json } = await api('GET', `/v1/billing/ledger${query}`, { key });
      assert.deepEqual([status, json.code], [400, 'validation_error']);
    }
    // The cursor of one account is not valid for another.
    const other = await api('GET', `/v1/billing/ledger?page_size=3&cursor=${next_cursor}`, { key: bed.keys.other });
    assert.equal(other.status, 400);
  });

  it('can be filtered by kind and time', async () => {
    const all = (await ledger('?page_size=1000')).entries;
    assert.deepEqual(
      (await ledger('?kind=correction')).entries,
      all.filter(({ kind }) => kind === 'correction'),
    );
    const [from, to] = [all.at(-3)?.created_at, all[1]?.created_at];
    assert.deepEqual((await ledger(`?from=${from}&to=${to}`)).entries, all.slice(1, -2));
  });

  it('refuses malformed queries with the name of the field', async () => {
    for (const [query, detail] of [
      ['kind=gift', /^kind must be one of top-up, /],
      ['from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', /^to must not be before from/],
      ['from=now', /^from must be a date and time/],
      ['page_size=0', /^page_size must be an integer from 1 to 1000/],
      ['page_size=1001', /^page_size must be/],
      ['account_id=x', /^Unknown query parameter "account_id"/],
    ] as const) {
      const { status, json } = await api('GET', `/v1/billing/ledger?${query}`, { key });
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, detail);
    }
  });

  it('of another account is not found', async () => {
    const [entry] = (await ledger()).entries;
    assert.deepEqual((await api('GET', '/v1/billing/ledger', { key: bed.keys.other })).json.entries, []);
    for (const [id, by] of [
      [entry?.id, bed.keys.other],
      [crypto.randomUUID(), key],
      ['x', key],
    ]) {
      const { status, json } = await api('GET', `/v1/billing/ledger/${id}`, { key: by ?? null });
      assert.deepEqual([status, json.code], [404, 'not_found']);
    }
  });

  it('is open to keys of scope read and to sessions', async () => {
    const headers = { cookie: await bed.session() };
    for (const path of ['usage', 'ledger']) {
      assert.equal((await api('GET', `/v1/billing/${path}`, { key: bed.keys.read })).status, 200);
      assert.equal((await api('GET', `/v1/billing/${path}`, { key: null, headers })).status, 200);
      assert.equal((await api('GET', `/v1/billing/${path}`, { key: null })).status, 401);
    }
  });
});

describe('CSV', () => {
  const csv = (path: string, accept = 'text/csv', by = key) =>
    api('GET', `/v1/billing/${path}`, { key: by, headers: { accept } });

  it('is sent when the client prefers it to JSON', async () => {
    for (const accept of ['text/csv', 'text/csv, */*;q=0.1', 'text/*', 'application/json;q=0.5, text/csv;q=0.9']) {
      const { headers } = await csv('usage', accept);
      assert.equal(headers.get('content-type'), 'text/csv; charset=utf-8', accept);
      assert.equal(headers.get('vary'), 'Accept');
    }
    for (const accept of [
      ...['application/json', '*/*', 'text/csv;q=0', 'text/html', 'text/csv;q=0.1, application/json', ''],
      'application/json, text/csv',
      'text/csv;q=0, */*;q=0.1',
    ]) {
      const { headers } = await csv('usage', accept);
      assert.match(headers.get('content-type') ?? '', /^application\/json/, accept);
      assert.equal(headers.get('vary'), 'Accept');
    }
  });

  it('of usage has a header row and the items of the JSON answer', async () => {
    const { json } = await api<Usage>('GET', '/v1/billing/usage?group_by=resource', { key: bed.keys.read });
    assert.deepEqual(json.items, []);
    const header = 'kind,resource_kind,resource_id,day,metadata_value,quantity,unit,amount\n';
    assert.equal((await csv('usage?group_by=resource', 'text/csv', bed.keys.read)).text, header);
    const to = (await ledger('?kind=charge&page_size=1')).entries[0]?.charged_to ?? '';
    const range = new URLSearchParams({ from: await beginning(), to, group_by: 'metadata.team' });
    const { items } = (await api<Usage>('GET', `/v1/billing/usage?${range}`, { key })).json;
    assert(items.length >= 6);
    const rows = items.map(
      (item) => `${item.kind},,,,${item.metadata_value ?? ''},${item.quantity},${item.unit},${item.amount}\n`,
    );
    assert.equal((await csv(`usage?${range}`)).text, header + rows.join(''));
  });

  it('of the ledger keeps negative amounts, and escapes texts that a spreadsheet would run as formulas', async () => {
    const { text } = await csv('ledger?kind=top-up');
    assert.match(
      text,
      /^id,created_at,kind,amount,balance,vcpu,memory,storage,snapshot,charged_from,charged_to,reference,note\n/,
    );
    assert.match(text, /,top-up,9000\.000000,9000\.000000,,,,,,,pay-1,"'=HYPERLINK\(""http:\/\/evil\.test""\)"\n$/);
    const correction = (await csv('ledger?kind=correction')).text;
    assert.match(correction, /,correction,-0\.000005,8999\.999995,,,,,,,,"a ""quoted"", two\nlines"\n$/);
    const charges = (await csv('ledger?kind=charge')).text;
    assert.match(
      charges,
      /,charge,-\d+\.\d{6},\d+\.\d{6},\d+\.\d{6},\d+\.\d{6},\d+\.\d{6},\d+\.\d{6},2\d{3}-[^,]+Z,[^,]+Z,,\n/,
    );
    for (const note of ['+1', '-1+1', '@SUM(1)', '\t=1', '-1']) {
      await inTransaction(db, (tx) => addEntry(tx, { accountId, kind: 'bonus', amountMicros: 1, note }));
      const last = (await csv('ledger?kind=bonus&page_size=1')).text.trimEnd().split('\n').at(-1) ?? '';
      // A negative number alone is no formula.
      assert.equal(last.split(',').at(-1), note === '-1' ? '-1' : `'${note}`);
    }
  });

  it('of the ledger names the next page in the header Link', async () => {
    const whole = (await csv('ledger?kind=charge&page_size=1000')).text;
    let path: string | undefined = 'ledger?kind=charge&page_size=2';
    const parts: string[] = [];
    while (path !== undefined) {
      const { text, headers, status } = await csv(path);
      assert.equal(status, 200, text);
      parts.push(parts.length === 0 ? text : text.slice(text.indexOf('\n') + 1));
      path = /^<\/v1\/billing\/([^>]+)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1];
    }
    assert(parts.length > 1);
    assert.equal(parts.join(''), whole);
  });

  it('an error is JSON also for a client that asks for CSV', async () => {
    const { status, json } = await csv('usage?group_by=week');
    assert.deepEqual([status, json.code], [400, 'validation_error']);
  });
});

describe('the lines of a charge', () => {
  it('stay the same when the price list changes', async () => {
    await charge();
    const [entry] = (await ledger('?kind=charge&page_size=1')).entries;
    const read = async () => (await api('GET', `/v1/billing/ledger/${entry?.id}`, { key })).text;
    const text = await read();
    const list = { vcpu_hour_micros: 1, memory_gib_hour_micros: 1, storage_gib_hour_micros: 1 };
    await inTransaction(db, (tx) => setPrices(tx, { ...list, snapshot_gib_hour_micros: 1 }));
    assert.equal(await read(), text);
  });
});
