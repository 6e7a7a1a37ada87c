// Tests of the operator's requests about accounts and hosts on the admin socket: new accounts and keys work at once,
// changes apply at once, and wrong input is refused as on the public API.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { AccountDetails, AccountSummary, HostSummary, NewAccount } from '@sandbar/contract/admin.ts';
import { TIER_LIMITS } from '@sandbar/contract/tier-limits.ts';
import { verifyPassword } from '../src/auth/password.ts';
import { callAdmin } from './support/admin.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  config: {
    rates: {
      mutating: { perSec: 10, burst: 60 },
      exec: { perSec: 20, burst: 100 },
      files: { perSec: 20, burst: 100 },
      signInAddress: { perSec: 1, burst: 1 },
      signInEmail: { perSec: 1, burst: 1 },
      signInUnknown: { perSec: 1, burst: 1 },
    },
  },
});
const { api, plane } = bed;
const { db } = plane.app;
const admin = <T = { code: string; detail: string }>(path: string, body?: object) =>
  callAdmin<T>(plane.app.config.adminSocket, path, body);
const create = (body: object) => admin<NewAccount>('/admin/accounts', body);
const show = async (account: string) =>
  (await admin<AccountDetails>(`/admin/accounts/${encodeURIComponent(account)}`)).json;
const isPasswordOf = async (accountId: string, password: string) => {
  const row = await db
    .selectFrom('credentials')
    .select('password_hash')
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  return verifyPassword({ hash: row?.password_hash ?? '', password });
};

describe('account create', () => {
  it('makes an account with a key and a password: tier free, unmetered', async () => {
    const { json } = await create({ email: 'Plain@Example.test' });
    assert.deepEqual(Object.keys(json).sort(), ['account_id', 'api_key', 'email', 'password']);
    assert.equal(json.email, 'plain@example.test');
    assert.equal((await api('POST', '/v1/machines', { key: json.api_key })).status, 201);
    assert(await isPasswordOf(json.account_id, json.password));
    const { tier, billing_mode, balance, is_owner } = await show('plain@example.TEST');
    assert.deepEqual([tier, billing_mode, balance, is_owner], ['free', 'unmetered', '0.000000', false]);
  });

  it('with a credit is prepaid, and the credit is a bonus, which keeps the tier', async () => {
    const { json } = await create({ email: 'credit@example.test', credit_eur: '25' });
    const { tier, billing_mode, balance } = await show(json.account_id);
    assert.deepEqual([tier, billing_mode, balance], ['free', 'prepaid', '25.000000']);
    const rows = await db.selectFrom('ledger').selectAll().where('account_id', '=', json.account_id).execute();
    assert.deepEqual(
      rows.map(({ kind, amount_micros }) => [kind, amount_micros]),
      [['bonus', 25_000_000]],
    );
    const empty = await create({ email: 'empty@example.test', credit_eur: '0' });
    assert.deepEqual((await show(empty.json.account_id)).billing_mode, 'prepaid');
    const both = await create({ email: 'both@example.test', credit_eur: '1', billing_mode: 'unmetered', tier: 'payg' });
    const made = await show(both.json.account_id);
    assert.deepEqual([made.tier, made.billing_mode, made.balance], ['payg', 'unmetered', '1.000000']);
  });

  it('that is refused leaves nothing', async () => {
    const count = async () => (await admin<{ accounts: unknown[] }>('/admin/accounts')).json.accounts.length;
    const before = await count();
    const email = 'refused@example.test';
    for (const body of [
      { email: 'no address' },
      { email, tier: 'gold' },
      { email, billing_mode: 'free' },
      { email, credit_eur: '-1' },
      { email, credit_eur: '1.0000001' },
      { email, credit_eur: 25 },
      { email, credits: '25' },
      {},
    ]) {
      const { status, json } = await admin('/admin/accounts', body);
      assert.deepEqual([status, json.code], [400, 'validation_error'], JSON.stringify(body));
    }
    const twice = await admin('/admin/accounts', { email: 'PLAIN@example.test' });
    assert.deepEqual([twice.status, twice.json.code], [409, 'conflict']);
    assert.equal(await count(), before);
  });
});

describe('an account that the operator changes', async () => {
  const { json: made } = await create({ email: 'changed@example.test', billing_mode: 'prepaid' });
  const path = `/admin/accounts/${made.account_id}`;

  it('is in the list, with its balance', async () => {
    const { json } = await admin<{ accounts: AccountSummary[] }>('/admin/accounts');
    const { limits, used, rates, ...summary } = await show(made.account_id);
    assert.deepEqual(
      json.accounts.filter(({ id }) => id === made.account_id),
      [summary],
    );
  });

  it('credit adds to the balance; only a top-up leaves the free tier', async () => {
    const bonus = await admin<AccountDetails>(`${path}/credit`, { eur: '0.5', as: 'bonus' });
    assert.deepEqual([bonus.json.balance, bonus.json.tier], ['0.500000', 'free']);
    const topUp = await admin<AccountDetails>(`${path}/credit`, { eur: '12.34', as: 'top-up' });
    assert.deepEqual([topUp.json.balance, topUp.json.tier], ['12.840000', 'payg']);
    for (const body of [
      { eur: '0', as: 'bonus' },
      { eur: '-1', as: 'bonus' },
      { eur: '1', as: 'charge' },
      { eur: '1' },
    ])
      assert.equal((await admin(`${path}/credit`, body)).status, 400, JSON.stringify(body));
    assert.equal((await show(made.account_id)).balance, '12.840000');
  });

  it('tier changes the limits', async () => {
    const { json } = await admin<AccountDetails>(`${path}/tier`, { tier: 'enterprise' });
    assert.deepEqual(json.limits.machines, { limit: TIER_LIMITS.enterprise.machines, override: null });
    assert.equal((await admin(`${path}/tier`, { tier: 'gold' })).status, 400);
  });

  it('limits override the tier one by one, hold at once, and can be taken away', async () => {
    await admin(`${path}/tier`, { tier: 'free' });
    const set = await admin<AccountDetails>(`${path}/limits`, { machines: 1, vcpus_per_machine: 3, rate_mutating: 2 });
    assert.deepEqual(set.json.limits.machines, { limit: 1, override: 1 });
    assert.deepEqual(set.json.limits.vcpus_per_machine, { limit: 3, override: 3 });
    assert.deepEqual(set.json.limits.vcpus, { limit: TIER_LIMITS.free.vcpus, override: null });
    assert.deepEqual(set.json.rates.mutating, { per_sec: 2, burst: 12, override: 2 });
    assert.deepEqual(set.json.rates.exec, { per_sec: 20, burst: 100, override: null });
    const machine = await api('POST', '/v1/machines', { key: made.api_key });
    assert.deepEqual([machine.status, machine.headers.get('ratelimit-limit')], [201, '12']);
    assert.deepEqual((await show(made.account_id)).used.machines, 1);
    const cleared = await admin<AccountDetails>(`${path}/limits`, { machines: null, rate_mutating: null });
    assert.deepEqual(cleared.json.limits.machines, { limit: TIER_LIMITS.free.machines, override: null });
    assert.deepEqual(cleared.json.rates.mutating, { per_sec: 10, burst: 60, override: null });
    assert.deepEqual(cleared.json.limits.vcpus_per_machine, { limit: 3, override: 3 });
    for (const body of [{}, { machines: -1 }, { machines: '3' }, { rate_exec: 0 }, { nonsense: 1 }, { vcpus: 1e10 }])
      assert.equal((await admin(`${path}/limits`, body)).status, 400, JSON.stringify(body));
    const { json } = await admin(`${path}/limits`, { rate_exec: 0 });
    assert.equal(json.detail, 'rate_exec must be an integer from 1 to 1000000 or null.');
  });

  it('password replaces the one before', async () => {
    const { json } = await admin<NewAccount>(`${path}/password`, {});
    assert.deepEqual([json.account_id, json.email], [made.account_id, 'changed@example.test']);
    assert(await isPasswordOf(made.account_id, json.password));
    assert(!(await isPasswordOf(made.account_id, made.password)));
  });

  it('key makes another key, of scope full unless it is to be read', async () => {
    const full = await admin<NewAccount>(`${path}/keys`, {});
    assert.equal((await api('DELETE', `/v1/machines/${randomUUID()}`, { key: full.json.api_key })).status, 404);
    const read = await admin<NewAccount>(`${path}/keys`, { scope: 'read', name: 'dashboards' });
    assert.equal((await api('DELETE', `/v1/machines/${randomUUID()}`, { key: read.json.api_key })).status, 403);
    const key = db.selectFrom('api_keys').select('scope').where('name', '=', 'dashboards').execute();
    assert.deepEqual(await key, [{ scope: 'read' }]);
  });
});

describe('an account that is not there', () => {
  it('is 404 for every action', async () => {
    const bodies = { tier: { tier: 'payg' }, credit: { eur: '1', as: 'bonus' }, limits: { vcpus: 1 } };
    for (const account of [randomUUID(), 'nobody@example.test', "x'; --", '%', 'a'.repeat(254)]) {
      const path = `/admin/accounts/${encodeURIComponent(account)}`;
      const answers = [await admin(path), await admin(`${path}/password`, {}), await admin(`${path}/keys`, {})];
      for (const [action, body] of Object.entries(bodies)) answers.push(await admin(`${path}/${action}`, body));
      for (const { status, json } of answers) assert.deepEqual([status, json.code], [404, 'not_found'], account);
    }
    assert.deepEqual((await admin('/admin/nonsense')).json.code, 'not_found');
  });
});

describe('hosts', () => {
  const list = async () => (await admin<{ hosts: HostSummary[] }>('/admin/hosts')).json.hosts;

  it('are listed with what they have and what is promised', async () => {
    const before = (await list())[0];
    assert(before);
    await api('POST', '/v1/machines', { body: { memory_mb: 512 } });
    const [host] = await list();
    const { last_seen_at, ...facts } = host ?? assert.fail();
    assert(Number.isFinite(Date.parse(last_seen_at)));
    assert.deepEqual(facts, {
      ...{ id: FAKE_HOST_ID, name: '', address: null, state: 'ready', draining: false },
      version: '0.0.0',
      isolation: 'emulated',
      cpus: 2,
      memory_mb: 65_536,
      ...{ disk_mb: 104_857_600, disk_free_mb: 104_857_600, disk_reserve_mb: 2048 },
      reserved_vcpus: before.reserved_vcpus + 1,
      reserved_memory_mb: before.reserved_memory_mb + 512,
      reserved_disk_gb: before.reserved_disk_gb + 10,
      ...{ machines: before.machines + 1, volumes: before.volumes, snapshots: before.snapshots },
    });
  });

  it('drain keeps new machines away and leaves those that are there', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    const drained = await admin<HostSummary>(`/admin/hosts/${FAKE_HOST_ID}/drain`, {});
    assert.deepEqual([drained.json.state, drained.json.draining], ['draining', true]);
    const refused = await api('POST', '/v1/machines');
    assert.deepEqual([refused.status, refused.json.code], [503, 'fleet_capacity']);
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'running');
    assert.equal((await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'true' } })).status, 201);
    const ready = await admin<HostSummary>(`/admin/hosts/${FAKE_HOST_ID}/undrain`, {});
    assert.deepEqual([ready.json.state, ready.json.draining], ['ready', false]);
    assert.equal((await api('POST', '/v1/machines')).status, 201);
    const stranger = await admin(`/admin/hosts/${randomUUID()}/drain`, {});
    assert.deepEqual([stranger.status, stranger.json.code], [404, 'not_found']);
  });

  it('a host that is gone is away', async () => {
    await bed.host.away();
    await until(async () => (await list())[0]?.state === 'away', 'the host is away');
    await bed.host.listen();
    await until(async () => (await list())[0]?.state === 'ready', 'the host is ready');
  });
});
