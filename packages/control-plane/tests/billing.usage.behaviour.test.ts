// Tests of usage queries: random meters in real PostgreSQL, compared with the same sums computed on BigInt.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import {
  USAGE_GROUPS_MAX,
  USAGE_KINDS,
  USAGE_UNITS,
  USAGE_VALUE_MAX,
  type Usage,
  type UsageKind,
} from '@sandbar/contract/billing.ts';
import { sql } from 'kysely';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { asOwner } from '../src/db/database.ts';
import { createLog } from '../src/log.ts';
import { eurOf, hoursOf, insertMeters, insertPrices, randomMeters, type TestMeter, useOf } from './support/meters.ts';
import { startTestBed } from './support/test-bed.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** The tests' time: eleven days in UTC, long enough ago that nothing else happens in it. */
const END = Math.floor(Date.now() / DAY_MS - 1) * DAY_MS;
const BEGIN = END - 11 * DAY_MS;
/** Prices with many digits, so that almost every amount has to be rounded down. */
const PRICES = [
  { vcpu_micros: 50_000, memory_micros: 16_000, storage_micros: 200, snapshot_micros: 7 },
  { vcpu_micros: 33_333, memory_micros: 99_991, storage_micros: 1, snapshot_micros: 77_777_777 },
];

/** The longest interval that PostgreSQL reads as int, so that the service does not charge what the tests insert. */
const NEVER_MS = 2 ** 31 - 1;
const bed = await startTestBed({ timing: { chargeMs: NEVER_MS } });
const { api } = bed;
const { db } = bed.plane.app;

/** Makes a prepaid account that has been charged up to `chargedUntilMs`. */
async function makeAccount(email: string, chargedUntilMs: number): Promise<{ id: string; key: string }> {
  const id = await insertAccount(db, { email, tier: 'payg' });
  await db
    .updateTable('accounts')
    .set({
      billing_mode: 'prepaid',
      balance_micros: -1_500_000,
      activity_at: new Date(chargedUntilMs),
      charged_until: new Date(chargedUntilMs),
    })
    .where('id', '=', id)
    .execute();
  return { id, key: await insertKey(db, id, 'read', 'usage') };
}

const iso = (ms: number) => new Date(ms).toISOString();
type Query = { from?: number; to?: number; group_by?: string; machine_id?: string };

async function usage(key: string, query: Query): Promise<Usage> {
  const { from, to, ...rest } = query;
  const parameters = new URLSearchParams(rest);
  if (from !== undefined) parameters.set('from', iso(from));
  if (to !== undefined) parameters.set('to', iso(to));
  const { status, json, text } = await api<Usage>('GET', `/v1/billing/usage?${parameters}`, { key });
  assert.equal(status, 200, text);
  return json;
}

let meters: TestMeter[];
let priceIds: number[];
let account: { id: string; key: string };

before(async () => {
  priceIds = [];
  for (const prices of PRICES) priceIds.push(await insertPrices(db, prices));
  account = await makeAccount('random@example.test', END);
  // The service moves open meters of an older price list to the newest one.
  const newest = priceIds.at(-1) ?? 0;
  meters = randomMeters(15, 300, BEGIN - 2 * DAY_MS, END, priceIds).map((meter) =>
    meter.endedMs === null ? { ...meter, price_id: newest } : meter,
  );
  await insertMeters(db, account.id, meters);
});

/** Computes the expected items: what the meters cost in a range, grouped by `groupOf`. */
function expectedItems(from: number, to: number, groupOf: (meter: TestMeter) => object, used = meters) {
  const sums = new Map<string, { micros: bigint; quantity: bigint }>();
  for (const meter of used) {
    for (const kind of USAGE_KINDS) {
      const prices = PRICES[priceIds.indexOf(meter.price_id)];
      assert(prices);
      const group = JSON.stringify({ kind, ...groupOf(meter) });
      const sum = sums.get(group) ?? { micros: 0n, quantity: 0n };
      const { micros, quantity } = useOf(meter, prices, kind, from, to);
      sums.set(group, { micros: sum.micros + micros, quantity: sum.quantity + quantity });
    }
  }
  const none = { resource_kind: null, resource_id: null, day: null, metadata_value: null };
  return [...sums].flatMap(([text, { micros, quantity }]) => {
    const group = JSON.parse(text) as { kind: UsageKind };
    if (quantity === 0n) return [];
    const { kind } = group;
    return [{ ...none, ...group, quantity: hoursOf(kind, quantity), unit: USAGE_UNITS[kind], amount: eurOf(micros) }];
  });
}

const sorted = (items: object[]) =>
  items.map((item) => JSON.stringify(Object.entries(item).sort())).sort((a, b) => (a < b ? -1 : 1));
const micros = (amount: string) => BigInt(amount.replace('.', ''));
const sumOf = ({ items }: Usage) => items.reduce((sum, { amount }) => sum + micros(amount), 0n);

/** Ranges that begin and end at midnight, in the middle of a day, and at the instants of meters. */
const ranges = (): [number, number][] => [
  [BEGIN, END],
  [BEGIN + 1, END - 1],
  [BEGIN + 5 * HOUR_MS, BEGIN + 7 * HOUR_MS],
  [BEGIN + 3 * DAY_MS + 12_345_678, BEGIN + 8 * DAY_MS + 87],
  [BEGIN + DAY_MS - 1, BEGIN + DAY_MS + 1],
  [meters[0]?.startedMs ?? 0, END],
  [BEGIN, meters.find(({ endedMs }) => endedMs !== null && endedMs > BEGIN && endedMs < END)?.endedMs ?? 0],
];

describe('usage', () => {
  const groups: [string, (meter: TestMeter) => object][] = [
    ['kind', () => ({})],
    ['resource', ({ resource_kind, resource_id }) => ({ resource_kind, resource_id })],
    ['metadata.team', ({ metadata }) => ({ metadata_value: teamOf(metadata) })],
    ['metadata.absent', () => ({})],
  ];
  const teamOf = ({ team }: Record<string, unknown>) =>
    team === undefined || team === null ? null : typeof team === 'string' ? team : JSON.stringify(team);

  for (const [group, groupOf] of groups) {
    it(`by ${group} equals arithmetic on BigInt, in every range`, async () => {
      for (const [from, to] of ranges()) {
        const answer = await usage(account.key, { from, to, group_by: group });
        assert.deepEqual(sorted(answer.items), sorted(expectedItems(from, to, groupOf)));
        assert.equal(micros(answer.total), sumOf(answer));
        assert.deepEqual([answer.from, answer.to, answer.balance], [iso(from), iso(to), '-1.500000']);
      }
    });
  }

  it('by day equals arithmetic on BigInt, in every range', async () => {
    for (const [from, to] of ranges()) {
      const answer = await usage(account.key, { from, to, group_by: 'day' });
      const days = [];
      for (let day = Math.floor(from / DAY_MS) * DAY_MS; day < to; day += DAY_MS) {
        const text = iso(day).slice(0, 10);
        days.push(...expectedItems(Math.max(from, day), Math.min(to, day + DAY_MS), () => ({ day: text })));
      }
      assert.deepEqual(answer.items, days);
      assert.equal(micros(answer.total), sumOf(answer));
    }
  });

  it('has the same total by every grouping, and by every way to cut the range', async () => {
    const whole = await usage(account.key, { from: BEGIN, to: END });
    assert(micros(whole.total) > 1_000_000n);
    for (const group_by of ['day', 'resource', 'metadata.team'])
      assert.equal((await usage(account.key, { from: BEGIN, to: END, group_by })).total, whole.total);
    for (const cut of [BEGIN + 1, BEGIN + 12_345_678, BEGIN + DAY_MS, END - 1]) {
      const parts = [
        await usage(account.key, { from: BEGIN, to: cut, group_by: 'day' }),
        await usage(account.key, { from: cut, to: END, group_by: 'resource' }),
      ];
      assert.equal(
        parts.reduce((sum, { total }) => sum + micros(total), 0n),
        micros(whole.total),
      );
    }
  });

  it('of one machine has only the use of this machine, and is empty for a machine of another account', async () => {
    const machine = meters.find(({ resource_kind, endedMs }) => resource_kind === 'machine' && endedMs === null);
    assert(machine);
    const query = { from: BEGIN, to: END, machine_id: machine.resource_id };
    const { items, total } = await usage(account.key, query);
    assert.deepEqual(
      items,
      expectedItems(BEGIN, END, () => ({}), [machine]),
    );
    assert(micros(total) > 0n);
    const other = await usage(bed.keys.other, query);
    assert.deepEqual([other.items, other.total], [[], '0.000000']);
    const volume = meters.find(({ resource_kind }) => resource_kind === 'volume')?.resource_id ?? '';
    assert.deepEqual((await usage(account.key, { ...query, machine_id: volume })).items, []);
  });

  it('ends at the last charge for a prepaid account, and now for an unmetered account', async () => {
    const far = END + 30 * DAY_MS;
    const charged = await usage(account.key, { from: BEGIN, to: far });
    assert.deepEqual(
      [charged.to, charged.total],
      [iso(END), (await usage(account.key, { from: BEGIN, to: END })).total],
    );
    const later = await usage(account.key, { from: END + DAY_MS, to: far });
    assert.deepEqual([later.from, later.to, later.items], [iso(END + DAY_MS), iso(END + DAY_MS), []]);

    const { accountId } = bed;
    const { rows } = await sql<{ now: Date }>`select date_trunc('second', now()) as now`.execute(db);
    const startedMs = (rows[0]?.now.getTime() ?? 0) - 10 * DAY_MS;
    const free = { ...(meters[0] as TestMeter), price_id: 0, vcpus: 2, startedMs, endedMs: null };
    await insertMeters(db, accountId, [{ ...free, resource_kind: 'machine' }]);
    const used = await usage(bed.keys.full, { from: startedMs, to: startedMs + 300 * DAY_MS });
    const ms = Date.parse(used.to) - startedMs;
    assert(ms >= 10 * DAY_MS && ms < 11 * DAY_MS, used.to);
    assert.equal(used.total, '0.000000');
    assert.equal(used.items[0]?.quantity, hoursOf('vcpu', 2n * BigInt(ms)));
  });

  it('without a range covers this month in UTC', async () => {
    const { from, to } = await usage(bed.keys.full, {});
    assert.match(from, /-01T00:00:00.000Z$/);
    assert.equal(from.slice(0, 7), to.slice(0, 7));
  });

  it('of a range of length zero is empty', async () => {
    const { items, total } = await usage(account.key, { from: BEGIN, to: BEGIN, group_by: 'day' });
    assert.deepEqual([items, total], [[], '0.000000']);
  });
});

describe('usage of a prepaid account without open meters', () => {
  it('is reported up to now, because all of it has been charged', async () => {
    const { id, key } = await makeAccount('idle@example.test', END);
    const closed = meters.filter(({ endedMs }) => endedMs !== null && endedMs <= END).slice(0, 20);
    await insertMeters(
      db,
      id,
      closed.map((meter) => ({ ...meter, resource_id: crypto.randomUUID() })),
    );
    const { to, total } = await usage(key, { from: BEGIN - 3 * DAY_MS });
    assert(Date.parse(to) > END + DAY_MS / 2, to);
    const items = expectedItems(BEGIN - 3 * DAY_MS, END, () => ({}), closed);
    assert.equal(
      micros(total),
      items.reduce((sum, { amount }) => sum + micros(amount), 0n),
    );
  });
});

describe('a usage query', () => {
  const refused: [string, RegExp][] = [
    ['from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z', /^to must not be before from\.$/],
    ['from=2999-01-01T00:00:00Z', /^to must not be before from\. .*without to, it ends now/],
    ['to=2000-01-01T00:00:00Z', /^to must not be before from\. Without from/],
    ['from=2025-01-01T00:00:00Z&to=2026-02-05T00:00:00.001Z', /^to must be at most 400 days after from\.$/],
    ['from=yesterday', /^from must be a date and time/],
    ['to=2026-03-01', /^to must be a date and time/],
    ['from=2026-03-01T00:00:00Z&from=2026-03-02T00:00:00Z', /^from must be/],
    ['group_by=week', /^group_by must be a grouping.*: day, resource, kind or metadata\.KEY\.$/],
    ['group_by=metadata.', /^group_by must be/],
    ['group_by=', /^group_by must be/],
    ['group_by=metadata.%00', /group_by must hold no NUL/],
    ['machine_id=m1', /^machine_id must be a UUID/],
    ['page_size=5', /^Unknown query parameter "page_size"/],
  ];
  for (const [query, detail] of refused) {
    it(`with ${query} is a 400 that names the field`, async () => {
      const { status, json } = await api('GET', `/v1/billing/usage?${query}`);
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, detail);
    });
  }

  it('of 400 days is answered, and groups by keys with any characters', async () => {
    const { key } = account;
    const to = BEGIN + 400 * DAY_MS;
    assert.equal((await usage(key, { from: BEGIN, to, group_by: 'day' })).to, iso(END));
    for (const name of ["it's", 'a.b', '"x"', 'line\nbreak', '%', '__proto__', '💶'])
      assert.equal((await usage(key, { from: BEGIN, to, group_by: `metadata.${name}` })).items.length, 4);
  });

  it('has the beginning of a long metadata value, and is refused when it has too many groups', async () => {
    const { id, key } = await makeAccount('groups@example.test', END);
    await sql`insert into meters (account_id, resource_kind, resource_id, vcpus, price_id, metadata, started_at, ended_at)
      select ${id}, 'machine', gen_random_uuid(), 1, 1, case n when 1 then ${{ long: 'é'.repeat(8_000) }}::jsonb else '{}' end,
        ${new Date(BEGIN)}, ${new Date(END)}
      from generate_series(1, ${USAGE_GROUPS_MAX + 1}::int) as n`.execute(db);
    const { items } = await usage(key, { from: BEGIN, to: END, group_by: 'metadata.long' });
    assert.deepEqual(
      items.map(({ metadata_value }) => metadata_value),
      ['é'.repeat(USAGE_VALUE_MAX), null],
    );
    const { status, json } = await api('GET', `/v1/billing/usage?from=${iso(BEGIN)}&group_by=resource`, { key });
    assert.deepEqual([status, json.detail?.startsWith('group_by ')], [400, true]);
  });

  it('is refused while the account has four others, and not because of another account', async () => {
    const other = await makeAccount('parallel@example.test', END);
    const asked = await asOwner(bed.databaseUrl, createLog('silent'), (owner) =>
      owner.transaction().execute(async (tx) => {
        await sql`lock table meters in access exclusive mode`.execute(tx);
        const five = Array.from({ length: 5 }, () => api('GET', '/v1/billing/usage', { key: account.key }));
        assert.equal((await Promise.race(five)).status, 429);
        return [...five, api('GET', '/v1/billing/usage', { key: other.key })];
      }),
    );
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    assert.deepEqual(statuses.toSorted(), [200, 200, 200, 200, 200, 429]);
  });

  it('needs a credential', async () => {
    assert.equal((await api('GET', '/v1/billing/usage', { key: null })).status, 401);
  });
});
