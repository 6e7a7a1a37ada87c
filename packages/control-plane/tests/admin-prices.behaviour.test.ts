// Tests that the operator's prices and billing modes are in force at once, also for what is in use already.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AccountDetails, NewAccount } from '@sandbar/contract/admin.ts';
import type { Prices } from '@sandbar/contract/admin-billing.ts';
import { callAdmin } from './support/admin.ts';
import { startTestBed } from './support/test-bed.ts';

// The service's own charges and the spend guard would change the meters that these tests look at.
const bed = await startTestBed({ timing: { chargeMs: 1_000_000_000, guardMs: 3_600_000 }, replicas: 2 });
const { api, plane } = bed;
const [, second = plane] = bed.replicas;
const { db } = plane.app;
type Refusal = { code: string; detail: string };
const admin = <T = Refusal>(path: string, body?: object, on = plane) =>
  callAdmin<T>(on.app.config.adminSocket, `/admin/${path}`, body);
const prices = async () => (await admin<Prices>('prices')).json;

let made = 0;
async function makeAccount(billing_mode: 'prepaid' | 'unmetered', credit_eur?: string) {
  const email = `prices-${++made}@example.test`;
  const body = { email, billing_mode, tier: 'enterprise', ...(credit_eur === undefined ? {} : { credit_eur }) };
  return (await admin<NewAccount>('accounts', body)).json;
}
const metersOf = (id: string) =>
  db
    .selectFrom('meters')
    .select(['resource_id', 'price_id', 'started_at', 'ended_at', 'vcpus'])
    .where('account_id', '=', id)
    .orderBy('id')
    .execute();
const newestList = () => db.selectFrom('prices').selectAll().orderBy('id', 'desc').limit(1).executeTakeFirstOrThrow();

describe('admin prices', () => {
  it('shows the list in force', async () => {
    const { since, ...list } = await prices();
    assert(Number.isFinite(Date.parse(since)));
    assert.deepEqual(list, {
      currency: 'EUR',
      prices: {
        vcpu_hour: '0.050000',
        memory_gib_hour: '0.016000',
        storage_gib_hour: '0.000200',
        snapshot_gib_hour: '0.000000',
      },
    });
  });

  it('changes the given prices, keeps the others, and keeps the old list', async () => {
    const before = await newestList();
    const { status, json } = await admin<Prices>('prices', { vcpu_hour: '0.06', snapshot_gib_hour: '0.000001' });
    assert.equal(status, 200);
    assert.deepEqual(json.prices, {
      vcpu_hour: '0.060000',
      memory_gib_hour: '0.016000',
      storage_gib_hour: '0.000200',
      snapshot_gib_hour: '0.000001',
    });
    assert.deepEqual(await prices(), json);
    const old = await db.selectFrom('prices').selectAll().where('id', '=', before.id).executeTakeFirstOrThrow();
    assert.deepEqual(old, before);
  });

  it('are in force at once for every open meter of prepaid accounts, and only for those', async () => {
    const [paying, free] = [await makeAccount('prepaid', '10'), await makeAccount('unmetered')];
    for (const { api_key: key } of [paying, free])
      assert.equal((await api('POST', '/v1/machines', { key })).status, 201);
    await admin('prices', { vcpu_hour: '0.07' });
    const { id } = await newestList();
    const [old, now, ...more] = await metersOf(paying.account_id);
    assert(old && now);
    assert.deepEqual([old.ended_at, now.ended_at, more], [now.started_at, Number.POSITIVE_INFINITY, []]);
    assert.deepEqual([old.price_id < id, now.price_id, now.vcpus], [true, id, old.vcpus]);
    const meters = await metersOf(free.account_id);
    assert.deepEqual(
      meters.map(({ price_id, ended_at }) => [price_id, ended_at]),
      [[0, Number.POSITIVE_INFINITY]],
    );
  });

  it('keep every one of several parallel changes of different prices on two replicas', async () => {
    const changes: [string, string][] = [
      ['vcpu_hour', '0.1'],
      ['memory_gib_hour', '0.2'],
      ['storage_gib_hour', '0.3'],
      ['snapshot_gib_hour', '0.4'],
    ];
    await Promise.all(
      changes.map(([name, eur], index) => admin('prices', { [name]: eur }, index % 2 === 0 ? plane : second)),
    );
    assert.deepEqual((await prices()).prices, Object.fromEntries(changes.map(([name, eur]) => [name, `${eur}00000`])));
  });

  it('that are invalid are 400, name the field and change nothing', async () => {
    const before = await prices();
    for (const [field, eur] of [
      ['vcpu_hour', '-0.01'],
      ['vcpu_hour', '-0.000001'],
      ['memory_gib_hour', '0.0000001'],
      ['storage_gib_hour', 'free'],
      ['storage_gib_hour', ''],
      ['snapshot_gib_hour', '100.000001'],
      ['snapshot_gib_hour', '1e1'],
      ['vcpu_hour', 1],
    ] as const) {
      const { status, json } = await admin('prices', { [field]: eur });
      assert.deepEqual([status, json.code], [400, 'validation_error'], `${field} ${eur}`);
      assert(json.detail.startsWith(`${field} must be `), json.detail);
    }
    for (const body of [{}, { cpu: '1' }, { vcpu_hour: '0.1', id: '7' }]) {
      assert.equal((await admin('prices', body)).status, 400, JSON.stringify(body));
    }
    assert.deepEqual(await prices(), before);
    assert.equal((await admin('prices', { vcpu_hour: '0', snapshot_gib_hour: '100' })).status, 200);
  });
});

describe('account billing', () => {
  const setMode = (id: string, billing_mode: string) =>
    admin<AccountDetails & Refusal>(`accounts/${id}/billing`, { billing_mode });

  it('changes the mode, and the open meters have the price of the new mode from then on', async () => {
    const { account_id: id, api_key: key } = await makeAccount('unmetered');
    assert.equal((await api('POST', '/v1/machines', { key })).status, 201);
    const { json } = await setMode(id, 'prepaid');
    assert.deepEqual([json.billing_mode, json.balance], ['prepaid', '0.000000']);
    assert.equal((await api('POST', '/v1/machines', { key })).status, 402);
    await setMode(id, 'unmetered');
    assert.equal((await api('POST', '/v1/machines', { key })).status, 201);
    const meters = await metersOf(id);
    const { id: newest } = await newestList();
    const [first] = meters;
    assert.deepEqual(
      meters.filter(({ resource_id }) => resource_id === first?.resource_id).map(({ price_id }) => price_id),
      [0, newest, 0],
    );
  });

  it('starts the time of an empty wallet when the account becomes prepaid', async () => {
    const { account_id: id } = await makeAccount('unmetered');
    const longAgo = new Date('2026-01-01T00:00:00Z');
    await db.updateTable('accounts').set({ empty_since: longAgo }).where('id', '=', id).execute();
    await setMode(id, 'prepaid');
    const read = () => db.selectFrom('accounts').select(['empty_since']).where('id', '=', id).executeTakeFirstOrThrow();
    const { empty_since } = await read();
    assert(empty_since !== null && empty_since > longAgo);
    // The same mode again changes nothing.
    await setMode(id, 'prepaid');
    assert.deepEqual(await read(), { empty_since });
    const funded = await makeAccount('unmetered', '5');
    await setMode(funded.account_id, 'prepaid');
    const row = db.selectFrom('accounts').select('empty_since').where('id', '=', funded.account_id);
    assert.deepEqual(await row.execute(), [{ empty_since: null }]);
  });

  it('takes no other mode, no deleted account and no absent one', async () => {
    const { account_id: id } = await makeAccount('prepaid');
    const { status, json } = await setMode(id, 'free');
    assert.deepEqual([status, json.detail], [400, 'billing_mode must be one of prepaid, unmetered.']);
    await admin(`accounts/${id}/delete`, {});
    assert.equal((await setMode(id, 'unmetered')).status, 409);
    assert.equal((await setMode('nobody@example.test', 'unmetered')).status, 404);
  });
});
