// Tests of metering and charging: what is metered in which state, that each charge is exact and made once, and that the
// feed, the meters and the ledger of an account agree to the millisecond.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import type { App } from '../src/app.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { setPrices } from '../src/billing/prices.ts';
import { changeBillingMode, repriceAccounts } from '../src/billing/reprice.ts';
import { chargeDueAccounts } from '../src/billing/round.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

// Charges of the service's own rounds would come between those of the tests.
const bed = await startTestBed({ timing: { chargeMs: 1_000_000_000 }, replicas: 2 });
const { api, host, plane } = bed;
const { app } = plane;
const { db } = app;

/** The application with rounds that charge whatever is an hour old. */
const everyHour = (of: App): App => ({
  ...of,
  config: { ...of.config, timing: { ...of.config.timing, chargeMs: 3_600_000 } },
});

let made = 0;
async function newAccount(billingMode: 'prepaid' | 'unmetered' = 'prepaid', amountMicros = 1_000_000_000) {
  const id = await insertAccount(db, { email: `m${made++}@example.test`, tier: 'enterprise', billingMode });
  const entry = { accountId: id, kind: 'bonus', amountMicros, note: '' } as const;
  if (billingMode === 'prepaid') await inTransaction(db, (tx) => addEntry(tx, entry));
  // Otherwise the service's own rounds would find the account due at once.
  await sql`update accounts set charged_until = now() where id = ${id}`.execute(db);
  return { id, key: await insertKey(db, id, 'full', 'key') };
}
const metersOf = (accountId: string) =>
  db.selectFrom('meters').selectAll().where('account_id', '=', accountId).orderBy('id').execute();
const chargesOf = (accountId: string) =>
  db
    .selectFrom('ledger')
    .selectAll()
    .where('account_id', '=', accountId)
    .where('kind', '=', 'charge')
    .orderBy('created_at')
    .execute();
const balanceOf = async (id: string) =>
  (await db.selectFrom('accounts').select('balance_micros').where('id', '=', id).executeTakeFirstOrThrow())
    .balance_micros;
const feedOf = async (accountId: string) =>
  (await db.selectFrom('activity').selectAll().where('account_id', '=', accountId).orderBy('created_at').execute()).map(
    (entry) => [entry.action, entry.created_at.getTime()] as const,
  );
/** Moves an account's past back by `ms`, as if this time had passed, because a test cannot wait for an hour. */
async function letPass(accountId: string, ms: number): Promise<void> {
  const { asOwner } = await import('../src/db/database.ts');
  const back = sql`${ms}::bigint * interval '1 millisecond'`;
  await asOwner(bed.databaseUrl, app.log, async (owner) => {
    await sql`update meters set started_at = started_at - ${back}, ended_at = ended_at - ${back}
      where account_id = ${accountId}`.execute(owner);
    await sql`update accounts set charged_until = charged_until - ${back} where id = ${accountId}`.execute(owner);
  });
}
describe('a meter', () => {
  it('follows a machine: all of it while it runs, its disk while it is stopped, nothing when it is destroyed', async () => {
    const { id, key } = await newAccount();
    const body = { vcpus: 2, memory_mb: 512, rootfs_size_gb: 3, metadata: { team: 'a' } };
    const machine = (await api('POST', '/v1/machines', { key, body })).json;
    await api('PATCH', `/v1/machines/${machine.id}`, { key, body: { metadata: { team: 'b' } } });
    await api('POST', `/v1/machines/${machine.id}/stop`, { key });
    await api('POST', `/v1/machines/${machine.id}/start`, { key });
    await api('DELETE', `/v1/machines/${machine.id}`, { key });
    const meters = await metersOf(id);
    assert.deepEqual(
      meters.map(({ vcpus, memory_mb, storage_gb, snapshot_mb, metadata }) => ({
        ...{ vcpus, memory_mb, storage_gb, snapshot_mb, metadata },
      })),
      [
        { vcpus: 2, memory_mb: 512, storage_gb: 3, snapshot_mb: 0, metadata: { team: 'a' } },
        { vcpus: 0, memory_mb: 0, storage_gb: 3, snapshot_mb: 0, metadata: { team: 'b' } },
        { vcpus: 2, memory_mb: 512, storage_gb: 3, snapshot_mb: 0, metadata: { team: 'b' } },
      ],
    );
    const bounds = [meters[0]?.started_at, ...meters.map((meter) => meter.ended_at)].map((at) => Number(at));
    assert.deepEqual(
      await feedOf(id),
      ['machine.created', 'machine.stopped', 'machine.started', 'machine.destroyed'].map((action, n) => [
        action,
        bounds[n],
      ]),
    );
  });

  it('counts a kept disk, a data volume and a snapshot until each is deleted', async () => {
    const { id, key } = await newAccount();
    const machine = (await api('POST', '/v1/machines', { key, body: { rootfs_size_gb: 2 } })).json;
    const snapshot = (await api('POST', `/v1/machines/${machine.id}/snapshots`, { key })).json;
    assert.equal((await api('DELETE', `/v1/snapshots/${snapshot.id}`, { key })).status, 204);
    const kept = (await api('DELETE', `/v1/machines/${machine.id}?preserve_storage=true`, { key })).json.root_volume_id;
    const volume = (await api('POST', '/v1/volumes', { key, body: { size_gb: 7 } })).json;
    assert.equal((await api('DELETE', `/v1/volumes/${kept}`, { key })).status, 204);
    assert.equal((await api('DELETE', `/v1/volumes/${volume.id}`, { key })).status, 204);
    const meters = await metersOf(id);
    const sizes = meters.map((meter) => [meter.resource_id, meter.storage_gb, meter.snapshot_mb]);
    assert.deepEqual(sizes, [
      [machine.id, 2, 0],
      [snapshot.id, 0, Math.ceil(snapshot.stored_bytes / 1_048_576)],
      [kept, 2, 0],
      [volume.id, 7, 0],
    ]);
    assert.equal(Number(meters[2]?.started_at), Number(meters[0]?.ended_at), 'the disk is counted without a gap');
    const feed = new Map(await feedOf(id));
    assert.equal(Number(meters[1]?.ended_at), feed.get('snapshot.deleted'));
    assert.equal(Number(meters[3]?.started_at), feed.get('volume.created'));
    assert.equal(Number(meters[3]?.ended_at), feed.get('volume.deleted'));
  });

  it('counts nothing for a create that fails and for a machine in error', async () => {
    const { id, key } = await newAccount();
    host.fault('ensure', 'fail');
    assert.notEqual((await api('POST', '/v1/machines', { key })).status, 201);
    host.heal();
    assert.deepEqual(await metersOf(id), []);
    const machine = (await api('POST', '/v1/machines', { key })).json;
    host.end(machine.id, 'failed', 'its process died');
    await bed.settled(async () => (await api('GET', `/v1/machines/${machine.id}`, { key })).json.state === 'error');
    assert.notEqual((await metersOf(id))[0]?.ended_at, Number.POSITIVE_INFINITY);
    assert.equal((await metersOf(id)).length, 1);
  });
});

describe('a charge', () => {
  it('is exact to the micro-euro, and a repeated round charges nothing twice', async () => {
    const { id, key } = await newAccount();
    const body = { vcpus: 2, memory_mb: 512, rootfs_size_gb: 3 };
    const machine = (await api('POST', '/v1/machines', { key, body })).json;
    await letPass(id, 7_200_000);
    await Promise.all([...bed.replicas, ...bed.replicas].map((replica) => chargeDueAccounts(everyHour(replica.app))));
    await chargeDueAccounts(everyHour(app));
    const [entry, ...others] = await chargesOf(id);
    assert(entry?.charged_to && entry.charged_from);
    assert.deepEqual(others, []);
    const ms = entry.charged_to.getTime() - entry.charged_from.getTime();
    assert(ms >= 7_200_000);
    const parts = [
      Math.floor((2 * 50_000 * ms) / 3_600_000),
      Math.floor((512 * 16_000 * ms) / 1024 / 3_600_000),
      Math.floor((3 * 200 * ms) / 3_600_000),
    ] as const;
    assert.deepEqual(
      [entry.sales_vcpu_micros, entry.sales_memory_micros, entry.sales_storage_micros, entry.sales_snapshot_micros],
      [...parts, 0],
    );
    const total = parts.reduce((sum, part) => sum + part, 0);
    assert.deepEqual([entry.amount_micros, entry.balance_micros], [-total, 1_000_000_000 - total]);
    assert.equal(await balanceOf(id), 1_000_000_000 - total);
    const [meter] = await metersOf(id);
    assert.deepEqual(entry.meter_ids, [meter?.id]);
    await api('DELETE', `/v1/machines/${machine.id}`, { key });
  });

  it('is made at every change, and all charges sum to what one charge for the whole time would be', async () => {
    const { id, key } = await newAccount();
    const machine = (await api('POST', '/v1/machines', { key })).json;
    await letPass(id, 3_333_333);
    await api('POST', `/v1/machines/${machine.id}/stop`, { key });
    const stopped = await chargesOf(id);
    assert.equal(stopped.length, 1);
    await letPass(id, 1_234_567);
    await api('DELETE', `/v1/machines/${machine.id}`, { key });
    const meters = await metersOf(id);
    const ms = meters.map((meter) => Number(meter.ended_at) - meter.started_at.getTime());
    const running = ms[0] ?? 0;
    const expected =
      Math.floor((50_000 * running) / 3_600_000) +
      Math.floor((16_000 * running) / 3_600_000) +
      ms.reduce((sum, span) => sum + Math.floor((10 * 200 * span) / 3_600_000), 0);
    assert.equal(await balanceOf(id), 1_000_000_000 - expected);
  });

  it('of one account that fails does not delay those of others', async () => {
    const [broken, sound] = [await newAccount(), await newAccount()];
    for (const { key } of [broken, sound]) await api('POST', '/v1/machines', { key });
    for (const { id } of [broken, sound]) await letPass(id, 7_200_000);
    // A balance from which PostgreSQL cannot subtract anything.
    await sql`update accounts set balance_micros = -9223372036854775808 where id = ${broken.id}`.execute(db);
    try {
      // A round skips an account that the spend guard has locked, so one round may not be enough.
      await until(async () => {
        await chargeDueAccounts(everyHour(app));
        return bed.logged().includes('an account could not be charged');
      }, 'the failure is logged');
      assert.deepEqual([(await chargesOf(broken.id)).length, (await chargesOf(sound.id)).length], [0, 1]);
    } finally {
      await sql`update accounts set balance_micros = 1000000000 where id = ${broken.id}`.execute(db);
    }
  });

  it('is never made for an unmetered account, whose meters are free', async () => {
    const { id, key } = await newAccount('unmetered');
    await api('POST', '/v1/machines', { key });
    await letPass(id, 7_200_000);
    await chargeDueAccounts(everyHour(app));
    assert.deepEqual(await chargesOf(id), []);
    assert.deepEqual(
      (await metersOf(id)).map((meter) => meter.price_id),
      [0],
    );
  });

  it('continues from the last charge when the clock of the database is far behind', async () => {
    const { id, key } = await newAccount();
    const machine = (await api('POST', '/v1/machines', { key })).json;
    // The account's clock stands an hour ahead, as after a clock that was wrong and was set back.
    await sql`update accounts set activity_at = activity_at + interval '1 hour' where id = ${id}`.execute(db);
    await api('POST', `/v1/machines/${machine.id}/stop`, { key });
    const charged = 1_000_000_000 - (await balanceOf(id));
    assert(charged >= 66_000);
    await api('POST', `/v1/machines/${machine.id}/start`, { key });
    await api('POST', `/v1/machines/${machine.id}/stop`, { key });
    assert(
      1_000_000_000 - (await balanceOf(id)) - charged < 10,
      'the hour that was charged ahead is not charged again',
    );
    for (const meter of await metersOf(id)) assert(Number(meter.ended_at) > meter.started_at.getTime());
  });
});

describe('another price list', () => {
  it('applies at once to running machines: the meter is split at one instant, and each part has its price', async () => {
    const { id, key } = await newAccount();
    const machine = (await api('POST', '/v1/machines', { key })).json;
    await letPass(id, 3_600_000);
    const list = { memory_gib_hour_micros: 0, storage_gib_hour_micros: 0, snapshot_gib_hour_micros: 0 };
    const priceId = await inTransaction(db, (tx) => setPrices(tx, { vcpu_hour_micros: 1_000_000, ...list }));
    await Promise.all(bed.replicas.map((replica) => repriceAccounts(replica.app)));
    const meters = await metersOf(id);
    assert.deepEqual(
      meters.map((meter) => meter.price_id),
      [1, priceId],
    );
    assert.equal(Number(meters[0]?.ended_at), Number(meters[1]?.started_at));
    const [split] = await chargesOf(id);
    assert.equal(Number(split?.charged_to), Number(meters[0]?.ended_at), 'all before it is charged at the old price');
    const charged = await chargesOf(id);
    const before = split?.balance_micros ?? 0;
    assert(charged.length <= 4, 'whichever replica repriced it later may have charged the moment since');
    await api('DELETE', `/v1/machines/${machine.id}`, { key });
    const [, second] = await metersOf(id);
    const ms = Number(second?.ended_at) - Number(second?.started_at);
    assert.equal(before - (await balanceOf(id)), Math.floor((1_000_000 * ms) / 3_600_000));
  });

  it('another billing mode splits the meters in the same way', async () => {
    const { id, key } = await newAccount();
    await api('POST', '/v1/machines', { key });
    await letPass(id, 3_600_000);
    await inTransaction(db, (tx) => changeBillingMode(tx, id, 'unmetered'));
    const after = await balanceOf(id);
    assert(after < 1_000_000_000);
    await letPass(id, 3_600_000);
    await inTransaction(db, (tx) => changeBillingMode(tx, id, 'prepaid'));
    assert.equal(await balanceOf(id), after, 'the free hour costs nothing');
    assert.equal((await metersOf(id)).length, 3);
  });

  it('that makes use free writes no charge, and the time of free use counts as charged', async () => {
    const free = { vcpu_hour_micros: 0, memory_gib_hour_micros: 0, storage_gib_hour_micros: 0 };
    await inTransaction(db, (tx) => setPrices(tx, { ...free, snapshot_gib_hour_micros: 0 }));
    await repriceAccounts(app);
    const { id, key } = await newAccount();
    await api('POST', '/v1/machines', { key });
    await letPass(id, 3_600_000);
    assert((await chargeDueAccounts(everyHour(app))) >= 1);
    assert.deepEqual(await chargesOf(id), []);
    const account = await db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    assert.deepEqual(account.charged_until, account.activity_at);
  });
});
