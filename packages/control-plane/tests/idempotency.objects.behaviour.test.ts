// Tests of the Idempotency-Key header on creates of volumes and snapshots: requests with the same key create exactly
// one object, however often and to whichever replica they are sent.
import assert from 'node:assert/strict';
import { afterEach, before, describe, it } from 'node:test';
import { sql } from 'kysely';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { checkAll } from './support/in-order.ts';
import { type CallOptions, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16' } });
const { api, host, keys, plane, accountId } = bed;
const { db } = plane.app;
const other = bed.replicas[1] ?? plane;
afterEach(() => host.heal());

const withKey = (key: string) => ({ 'idempotency-key': key });
const replayed = (answer: { headers: Headers }) => answer.headers.get('idempotent-replayed');
const newMachine = async (options: CallOptions = {}): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128 }, ...options });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};

/** A kind of object that is created once for a key. */
type Kind = {
  name: 'volume' | 'snapshot';
  /** The host call that creates the object. */
  call: 'ensureVolume' | 'takeSnapshot';
  body: object;
  /** Another body that means the same as `body`. */
  sameBody: object;
  /** Bodies that mean something else. The first one is always allowed. */
  otherBodies: [object, object];
  /** Returns the path of the request that creates the object. */
  path: (key?: string) => Promise<string>;
  /** Changes an object, and returns the changed fields. */
  change: (id: string) => Promise<object>;
  /** Leaves room for `count` more objects in the account's limit, or removes the limit. */
  leaveRoom: (count: number | undefined) => Promise<unknown>;
};

let machine: string;
before(async () => {
  machine = await newMachine();
});

const KINDS: Kind[] = [
  {
    name: 'volume',
    call: 'ensureVolume',
    body: { size_gb: 5 },
    sameBody: { name: '', size_gb: 5 },
    otherBodies: [{ size_gb: 6 }, { size_gb: 5, name: 'x' }],
    path: async () => '/v1/volumes',
    change: async (id) => {
      const body = { machine_id: machine, mount_path: `/mnt/${id}` };
      assert.equal((await api('POST', `/v1/volumes/${id}/attach`, { body })).status, 200);
      return { state: 'attached', ...body };
    },
    leaveRoom: (count) => {
      const limit_volumes = count === undefined ? null : sql<number>`used_volumes + ${count}::int`;
      return db.updateTable('accounts').set({ limit_volumes }).where('id', '=', accountId).execute();
    },
  },
  {
    name: 'snapshot',
    call: 'takeSnapshot',
    body: {},
    sameBody: { memory: false, name: '' },
    otherBodies: [{ name: 'x' }, { memory: true }],
    path: async (key) => `/v1/machines/${key === undefined ? machine : await newMachine({ key })}/snapshots`,
    change: async (id) => {
      host.snapshots.delete(id);
      await bed.settled(async () => (await api('GET', `/v1/snapshots/${id}`)).json.state === 'error');
      return { state: 'error' };
    },
    leaveRoom: async (count) => {
      const { length } = await rowsOf('snapshot');
      for (const { app } of bed.replicas) {
        Object.assign(app.config.bounds, { snapshotsPerAccount: count === undefined ? 1000 : length + count });
      }
    },
  },
];

const rowsOf = (name: Kind['name']) =>
  db.selectFrom(`${name}s`).select(['id', 'state']).where('account_id', '=', accountId).execute();

for (const kind of KINDS) {
  const { name, call, body, sameBody, otherBodies } = kind;
  const k = (key: string) => `${name} ${key}`;
  const create = async (key: string, options: CallOptions = {}) =>
    api('POST', await kind.path(options.key ?? undefined), { body, headers: withKey(k(key)), ...options });
  /** Returns whether an unfinished create holds this key. */
  const isUnderWay = async (key: string): Promise<boolean> => {
    const query = db.selectFrom('idempotency_keys').select(`${name}_id as id`).where('key', '=', k(key));
    const id = (await query.executeTakeFirst())?.id;
    return (await rowsOf(name)).some((row) => row.id === id && row.state === 'creating');
  };

  describe(`a create of a ${name} with an Idempotency-Key (CTL-1)`, () => {
    it(`is 201 first, then 200 with the ${name} as it is now`, async () => {
      const first = await create('a');
      assert.deepEqual([first.status, replayed(first)], [201, null], first.text);
      const second = await create('a', { body: sameBody, plane: other });
      assert.deepEqual([second.status, replayed(second)], [200, 'true'], second.text);
      assert.deepEqual(second.json, first.json);
      const changed = await kind.change(first.json.id);
      const third = await create('a');
      assert.deepEqual([third.status, third.json.id], [200, first.json.id]);
      assert.deepEqual({ ...third.json, ...changed }, third.json);
    });

    it(`is 404 after the ${name} was deleted, and makes no other one`, async () => {
      const first = await create('deleted');
      host.fault(`delete${name === 'volume' ? 'Volume' : 'Snapshot'}`, 'hang', 1);
      const deleting = api('DELETE', `/v1/${name}s/${first.json.id}`);
      await bed.settled(async () => (await api('GET', `/v1/${name}s/${first.json.id}`)).status === 404);
      const before = await rowsOf(name);
      for (const isGone of [false, true]) {
        if (isGone) {
          host.heal();
          assert.equal((await deleting).status, 204);
        }
        const again = await create('deleted');
        assert.deepEqual([again.status, again.json.code], [404, 'not_found']);
        assert.match(again.json.detail, /^The (volume|snapshot) that was created with this Idempotency-Key is deleted/);
      }
      assert.equal((await rowsOf(name)).length, before.length - 1);
    });

    it('with another body, or another kind of request, is a 409', async () => {
      await create('b');
      const requests: [string, object][] = [
        [await kind.path(), otherBodies[0]],
        [await kind.path(), otherBodies[1]],
        ['/v1/machines', {}],
        ...(await Promise.all(
          KINDS.filter((each) => each !== kind).map(
            async (each): Promise<[string, object]> => [await each.path(), each.body],
          ),
        )),
      ];
      for (const [path, otherRequest] of requests) {
        const answer = await api('POST', path, { body: otherRequest, headers: withKey(k('b')) });
        assert.deepEqual([answer.status, answer.json.code], [409, 'conflict'], path);
        assert.match(answer.json.detail, /another body or path/);
      }
      await api('POST', '/v1/machines', { body: { name: 'x' }, headers: withKey(k('of a machine')) });
      assert.equal((await create('of a machine')).status, 409);
    });

    it('of another account is another key', async () => {
      const mine = await create('c');
      const theirs = await create('c', { key: keys.other });
      assert.deepEqual([theirs.status, replayed(theirs)], [201, null]);
      assert.notEqual(mine.json.id, theirs.json.id);
    });

    it('that is empty, too long or not printable is a 400', async () => {
      for (const key of ['x'.repeat(256), 'a\tb', 'ü']) {
        const answer = await api('POST', await kind.path(), { body, headers: withKey(key) });
        assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error'], key);
        assert.match(answer.json.detail, /idempotency-key/i);
      }
    });

    it(`sent 20 times at once over two replicas makes one ${name}, also with room for one`, async () => {
      const before = await rowsOf(name);
      await kind.leaveRoom(1);
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, index) => create('d', { plane: index % 2 ? other : plane })),
      );
      assert.deepEqual(answers.map((answer) => answer.status).sort(), [...Array(19).fill(200), 201]);
      assert.equal(new Set(answers.map((answer) => answer.json.id)).size, 1);
      assert.equal((await rowsOf(name)).length, before.length + 1);
      assert.equal((await create('full')).json.code, 'quota_exceeded');
      assert.equal((await create('d')).status, 200, 'a replay needs no room');
      await kind.leaveRoom(undefined);
      assert.equal((await create('full')).status, 201, 'a refusal leaves the key free');
      await checkAll(bed);
    });

    it('waits for the first request, and takes its place when that one fails', async () => {
      const before = host.callsOf(call);
      host.fault(call, 'hangThenFail', 1);
      const first = create('e');
      await bed.settled(async () => host.callsOf(call) > before && (await isUnderWay('e')));
      const second = create('e', { plane: other });
      const third = create('e');
      host.heal();
      assert.equal((await first).status, 500);
      const answers = await Promise.all([second, third]);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 201]);
      assert.equal(answers[0].json.id, answers[1].json.id);
      await checkAll(bed);
    });

    it('is free again when the first attempt failed', async () => {
      host.fault(call, 'fail', 1);
      assert.equal((await create('f')).status, 500);
      const again = await create('f', { body: otherBodies[0] });
      assert.deepEqual([again.status, replayed(again)], [201, null]);
    });

    it('is forgotten after 24 hours, not before', async () => {
      const first = await create('g');
      const age = (hours: number) =>
        sql`update idempotency_keys set created_at = now() - ${hours} * interval '1 hour' where key = ${k('g')}`.execute(
          db,
        );
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
}

describe('a snapshot with an Idempotency-Key (CTL-1)', () => {
  const take = (of: string, key: string, body: object = {}) =>
    api('POST', `/v1/machines/${of}/snapshots`, { body, headers: withKey(key) });

  it('of another machine is a 409, also when that machine does not exist', async () => {
    assert.equal((await take(machine, 'machine')).status, 201);
    for (const id of [await newMachine(), '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65']) {
      assert.deepEqual((await take(id, 'machine')).json.code, 'conflict');
    }
    assert.equal((await take(machine.toUpperCase(), 'machine')).status, 200);
  });

  it('is replayed when the machine allows no snapshot any more, and while it does something else', async () => {
    const id = await newMachine();
    const first = await take(id, 'memory', { memory: true });
    assert.equal(first.status, 201);
    host.fault('ensure', 'hang', 1);
    const before = host.callsOf('ensure');
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await bed.settled(() => host.callsOf('ensure') > before);
    assert.equal((await take(id, 'memory', { memory: true })).json.id, first.json.id);
    host.heal();
    assert.equal((await stopping).status, 200);
    assert.equal((await take(id, 'another', { memory: true })).status, 409);
    assert.equal((await take(id, 'memory', { memory: true })).json.id, first.json.id);
  });

  it('is free again when a delete of the machine overtook the first attempt', async () => {
    const id = await newMachine();
    const before = host.callsOf('takeSnapshot');
    host.fault('takeSnapshot', 'hang', 1);
    const first = take(id, 'overtaken');
    await bed.settled(() => host.callsOf('takeSnapshot') > before);
    assert.equal((await api('DELETE', `/v1/machines/${id}?delete_snapshots=true`)).status, 200);
    host.heal();
    assert.equal((await first).status, 409);
    assert.equal((await take(machine, 'overtaken')).status, 201);
    await checkAll(bed);
  });
});
