// Tests of the Idempotency-Key header on machine creates: requests with the same key create exactly one machine,
// however often and to whichever replica they are sent, and even if a process dies in between.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16' } });
const { api, host, keys, plane } = bed;
const other = bed.replicas[1] ?? plane;
const create = (key: string, body: object = {}, options: object = {}) =>
  api('POST', '/v1/machines', { body, headers: { 'idempotency-key': key }, ...options });
const replayed = (answer: { headers: Headers }) => answer.headers.get('idempotent-replayed');
const countMachines = async () =>
  (
    await plane.app.db
      .selectFrom('machines')
      .select((e) => e.fn.countAll<number>().as('n'))
      .executeTakeFirstOrThrow()
  ).n;

/** Returns whether a machine that is still being created holds this key. */
async function isWaiting(key: string): Promise<boolean> {
  const row = await plane.app.db
    .selectFrom('idempotency_keys')
    .innerJoin('machines', 'machines.id', 'machine_id')
    .select('state')
    .where('key', '=', key)
    .executeTakeFirst();
  return row?.state === 'provisioning';
}

describe('a create with an Idempotency-Key', () => {
  it('is 201 first, then 200 with the machine as it is now, until it is destroyed and after', async () => {
    const first = await create('a', { name: 'x', metadata: { b: 1, a: [2] } });
    assert.deepEqual([first.status, replayed(first)], [201, null]);
    const second = await create('a', { metadata: { a: [2], b: 1 }, name: 'x' }, { plane: other });
    assert.deepEqual([second.status, replayed(second), second.json.id], [200, 'true', first.json.id]);
    await api('POST', `/v1/machines/${first.json.id}/stop`);
    assert.equal((await create('a', { name: 'x', metadata: { b: 1, a: [2] } })).json.state, 'stopped');
    await api('DELETE', `/v1/machines/${first.json.id}`);
    const last = await create('a', { name: 'x', metadata: { b: 1, a: [2] } });
    assert.deepEqual([last.status, last.json.state], [200, 'destroyed']);
  });

  it('with another body is a 409', async () => {
    await create('b', { name: 'x' });
    const answer = await create('b', { name: 'y' });
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.match(answer.json.detail, /another body/);
  });

  it('is stored with the same hash as by older versions, so a replay works across an update', async () => {
    await create('hashed', { name: 'x' });
    const query = plane.app.db.selectFrom('idempotency_keys').select('fingerprint').where('key', '=', 'hashed');
    const defaults = { expires_in_sec: null, memory_mb: 1024, on_expiry: 'destroy', rootfs_size_gb: 10 };
    const request = { env: {}, ...defaults, metadata: {}, name: 'x', stack: 'base', vcpus: 1 };
    const sorted = JSON.stringify(Object.fromEntries(Object.entries(request).sort(([a], [b]) => (a < b ? -1 : 1))));
    const { fingerprint } = await query.executeTakeFirstOrThrow();
    assert.equal(fingerprint.toString('hex'), createHash('sha256').update(sorted).digest('hex'));
  });

  it('of another account is another key', async () => {
    const mine = await create('c');
    const theirs = await create('c', {}, { key: keys.other });
    assert.equal(theirs.status, 201);
    assert.notEqual(mine.json.id, theirs.json.id);
  });

  it('that is empty, too long or not printable is a 400', async () => {
    for (const key of ['x'.repeat(256), 'a\tb', 'ü']) {
      const answer = await create(key);
      assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error'], key);
      assert.match(answer.json.detail, /idempotency-key/i);
    }
    assert.equal((await create(' ~'.repeat(100))).status, 201);
  });

  it('sent 20 times at once over two replicas makes one machine, also with a quota for one', async () => {
    const { db } = plane.app;
    const before = await countMachines();
    const used = await db
      .selectFrom('accounts')
      .select('used_machines')
      .where('id', '=', bed.accountId)
      .executeTakeFirstOrThrow();
    const limit = (limit_machines: number | null) =>
      db.updateTable('accounts').set({ limit_machines }).where('id', '=', bed.accountId).execute();
    await limit(used.used_machines + 1);
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) => create('d', {}, { plane: index % 2 ? other : plane })),
    );
    await limit(null);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [...Array(19).fill(200), 201]);
    assert.equal(new Set(answers.map((answer) => answer.json.id)).size, 1);
    assert.equal(await countMachines(), before + 1);
    await checkBooks(bed);
  });

  it('waits for the first request, and takes its place when that one fails', async () => {
    const before = host.callsOf('ensure');
    host.fault('ensure', 'hangThenFail', 1);
    const first = create('e');
    await bed.settled(() => host.callsOf('ensure') > before);
    const second = create('e', {}, { plane: other });
    await bed.settled(() => isWaiting('e'));
    host.heal();
    assert.equal((await first).status, 500);
    const answer = await second;
    assert.deepEqual([answer.status, replayed(answer)], [201, null]);
    await checkBooks(bed);
  });

  it('is free again when the first attempt failed', async () => {
    host.fault('ensure', 'fail', 1);
    assert.equal((await create('f')).status, 500);
    const again = await create('f', { name: 'another body' });
    assert.deepEqual([again.status, replayed(again)], [201, null]);
  });

  it('is free again when a delete overtook the first attempt', async () => {
    const before = host.callsOf('ensure');
    host.fault('ensure', 'hang', 1);
    const first = create('h');
    await bed.settled(async () => host.callsOf('ensure') > before && (await isWaiting('h')));
    const [made] = (await api('GET', '/v1/machines')).json.machines;
    assert.equal((await api('DELETE', `/v1/machines/${made.id}`)).status, 200);
    host.heal();
    assert.equal((await first).status, 409);
    assert.equal((await create('h')).status, 201);
    await checkBooks(bed);
  });

  it('is forgotten after 24 hours, not before', async () => {
    const { db } = plane.app;
    const first = await create('g');
    const age = (hours: number) =>
      sql`update idempotency_keys set created_at = now() - ${hours} * interval '1 hour' where key = 'g'`.execute(db);
    await age(23.9);
    await keepHouse(plane.app);
    assert.equal((await create('g')).json.id, first.json.id);
    await age(24.1);
    await keepHouse(plane.app);
    const later = await create('g');
    assert.equal(later.status, 201);
    assert.notEqual(later.json.id, first.json.id);
  });
});
