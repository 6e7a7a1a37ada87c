// Tests of machines made from a snapshot or a kept root disk: on which host they run, what they inherit, how they count
// toward quotas, and that a failed create returns the disk.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { QuotaDimension } from '@sandbar/contract/tier-limits.ts';
import { sql } from 'kysely';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { type CallOptions, startTestBed } from './support/test-bed.ts';

const image = (stack: string) => ({
  stack,
  description: 'For tests.',
  digest: `sha256:${'0'.repeat(64)}`,
  architecture: 'x86_64' as const,
  min_rootfs_gb: 2,
  default: stack === 'base',
  created_at: '2026-01-01T00:00:00.000Z',
});
const bed = await startTestBed({
  replicas: 2,
  overcommit: { memory: 1 },
  host: { subnet: '10.83.0.0/16', cpus: 8, memory_mb: 65_536, images: [image('base'), image('node')] },
});
const { api, host, keys, accountId } = bed;
const { db } = bed.plane.app;

const post = (body: object, options: CallOptions = {}) => api('POST', '/v1/machines', { body, ...options });
const create = async (body: object = {}): Promise<string> => {
  const answer = await post({ memory_mb: 128, ...body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const snap = async (machineId: string, body: object = {}): Promise<string> => {
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`, { body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const keepDisk = async (body: object = {}): Promise<string> => {
  const answer = await api('DELETE', `/v1/machines/${await create(body)}?preserve_storage=true`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json.root_volume_id;
};
const used = async (name: QuotaDimension): Promise<number> => {
  const { quotas } = (await api('GET', '/v1/quotas')).json;
  return quotas.find((quota: { name: string }) => quota.name === name).used;
};
const volumeIds = async (): Promise<string[]> =>
  (await api('GET', '/v1/volumes')).json.volumes.map((volume: { id: string }) => volume.id);
const volumeRow = (id: string) => db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
const countMachines = async (): Promise<number> => (await api('GET', '/v1/machines')).json.machines.length;

afterEach(async () => {
  host.heal();
  await bed.settled(() => bed.plane.app.hosts.reachableIds().length === 1);
  await sql`update accounts set limit_storage_gb = null, billing_mode = 'unmetered', limit_vcpus_per_machine = null`.execute(
    db,
  );
  const { json } = await api('GET', '/v1/machines');
  for (const { id } of json.machines) await api('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
  for (const id of await volumeIds()) await api('DELETE', `/v1/volumes/${id}`);
  await bed.settled(async () => (await countMachines()) === 0 && host.snapshots.size === 0 && host.volumes.size === 0);
  await checkAll(bed);
});

describe('POST /v1/machines with snapshot_id', () => {
  it('makes a machine of its disk, with its stack, and names it from then on', async () => {
    const source = await create({ stack: 'node' });
    const id = await snap(source);
    const answer = await post({ snapshot_id: id, name: 'copy', vcpus: 2, memory_mb: 256, rootfs_size_gb: 20 });
    assert.equal(answer.status, 201, answer.text);
    const { snapshot_id, root_volume_id, state, stack, vcpus, memory_mb, rootfs_size_gb, name } = answer.json;
    assert.deepEqual(
      [snapshot_id, root_volume_id, state, stack, vcpus, memory_mb, rootfs_size_gb, name],
      [id, null, 'running', 'node', 2, 256, 20, 'copy'],
    );
    assert.equal(host.machines.get(answer.json.id)?.wanted.spec.snapshot_id, id);
    assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 204);
    assert.equal((await api('GET', `/v1/machines/${answer.json.id}`)).json.snapshot_id, id);
    assert.equal((await api('POST', `/v1/machines/${answer.json.id}/stop`)).status, 200);
    assert.equal((await api('POST', `/v1/machines/${answer.json.id}/start`)).status, 200, 'it lives on');
    const [entry] = (await api('GET', `/v1/machines/${answer.json.id}/activity`)).json.activity.slice(-1);
    assert.deepEqual(entry.metadata, { stack: 'node', vcpus: 2, memory_mb: 256, rootfs_gb: 20 });
  });

  it('gives the larger of 10 and its size when rootfs_size_gb is missing; a smaller one is a 400', async () => {
    const small = await snap(await create({ rootfs_size_gb: 4 }));
    const large = await snap(await create({ rootfs_size_gb: 30 }));
    const sizeOf = async (snapshot_id: string) => (await post({ snapshot_id })).json.rootfs_size_gb;
    assert.deepEqual([await sizeOf(small), await sizeOf(large)], [10, 30]);
    const answer = await post({ snapshot_id: large, rootfs_size_gb: 29 });
    assert.deepEqual(
      [answer.status, answer.json.detail],
      [400, 'rootfs_size_gb must be at least 30, the size of the snapshot.'],
    );
    assert.equal((await post({ snapshot_id: small, rootfs_size_gb: 4 })).status, 201);
  });

  it('takes vcpus and memory_mb of a memory snapshot, and no others', async () => {
    const id = await snap(await create({ vcpus: 2, memory_mb: 512 }), { memory: true });
    const { status, json } = await post({ snapshot_id: id });
    assert.deepEqual([status, json.vcpus, json.memory_mb], [201, 2, 512]);
    assert.equal((await post({ snapshot_id: id, vcpus: 2, memory_mb: 512 })).status, 201);
    for (const [body, detail] of [
      [{ vcpus: 1 }, 'vcpus must be 2, as in the memory snapshot.'],
      [{ memory_mb: 1024 }, 'memory_mb must be 512, as in the memory snapshot.'],
    ] as const) {
      const answer = await post({ snapshot_id: id, ...body });
      assert.deepEqual([answer.status, answer.json.detail], [400, detail]);
    }
    const disk = await snap(await create({ vcpus: 2, memory_mb: 512 }));
    const plain = await post({ snapshot_id: disk });
    assert.deepEqual([plain.json.vcpus, plain.json.memory_mb], [1, 1024], 'a disk says nothing of them');
  });

  it('is a 400 with root_volume_id, with another stack, and over the per-machine maximum of now', async () => {
    const id = await snap(await create());
    const both = await post({ snapshot_id: id, root_volume_id: randomUUID() });
    assert.deepEqual([both.status, both.json.code], [400, 'validation_error']);
    assert.match(both.json.detail, /snapshot_id and root_volume_id/);
    const other = await post({ snapshot_id: id, stack: 'node' });
    assert.deepEqual([other.status, other.json.detail], [400, 'stack must be base, as in the snapshot.']);
    assert.equal((await post({ snapshot_id: id, stack: 'base' })).status, 201);
    const memory = await snap(await create({ vcpus: 4 }), { memory: true });
    await sql`update accounts set limit_vcpus_per_machine = 2`.execute(db);
    const large = await post({ snapshot_id: memory });
    assert.deepEqual([large.status, large.json.detail], [400, 'vcpus must be at most 2 for this account.']);
  });

  it('is a 404 for an absent snapshot, the same for another account’s, and before the balance is looked at', async () => {
    const id = await snap(await create());
    const foreign = await post({ snapshot_id: id }, { key: keys.other });
    const absent = await post({ snapshot_id: randomUUID() }, { key: keys.other });
    assert.deepEqual([foreign.status, foreign.json], [404, absent.json]);
    await sql`update accounts set billing_mode = 'prepaid' where id = ${accountId}`.execute(db);
    assert.equal((await post({ snapshot_id: randomUUID() })).status, 404);
    assert.equal((await post({ snapshot_id: id })).status, 402);
    assert.equal((await post({ snapshot_id: 'x' })).status, 400);
  });

  it('needs no image of its stack any more', async () => {
    const id = await snap(await create({ stack: 'node' }));
    host.info.images = host.info.images.filter(({ stack }) => stack !== 'node');
    await bed.plane.reconciler.runOnce();
    assert.equal((await post({ stack: 'node' })).status, 400);
    assert.equal((await post({ snapshot_id: id })).status, 201);
    host.info.images = [image('base'), image('node')];
    await bed.plane.reconciler.runOnce();
  });

  it('goes to the host of the snapshot, whose lack of room or absence is a 503', async () => {
    const id = await snap(await create());
    // A second host that has more room, and that another replica seems to listen to. The machine must not be placed
    // there.
    const other = randomUUID();
    await sql`insert into hosts (id, version, boot_id, isolation, network, subnet, cpus, memory_mb, images, address,
        listener_id, listener_until)
      select ${other}, version, boot_id, isolation, network, '10.84.0.0/16', cpus, 1000000, images, 'other.test:7072',
        ${randomUUID()}::uuid, now() + interval '1 hour'
      from hosts`.execute(db);
    for (const { app } of bed.replicas) {
      await app.hosts.reload();
      assert(app.hosts.reachableIds().includes(other));
    }
    const full = await post({ snapshot_id: id, memory_mb: 65_536 });
    assert.deepEqual([full.status, full.json.code], [503, 'fleet_capacity']);
    assert.match(full.json.detail, /host of the snapshot .* limit of the fleet, not a quota/);
    assert.ok(full.headers.get('retry-after'));
    const { json } = await post({ snapshot_id: id });
    const row = await db.selectFrom('machines').selectAll().where('id', '=', json.id).executeTakeFirstOrThrow();
    assert.equal(row.host_id, FAKE_HOST_ID);
    await db.deleteFrom('hosts').where('id', '=', other).execute();
    await host.away();
    await bed.settled(() => bed.replicas.every((replica) => replica.app.hosts.reachableIds().length === 0));
    const away = await post({ snapshot_id: id });
    assert.deepEqual([away.status, away.json.code], [503, 'host_unavailable']);
    await host.listen();
  });

  it('that goes while the machine is made leaves nothing', async () => {
    const id = await snap(await create());
    host.fault('ensure', new ServiceError('not_found', 'The host does not know this snapshot.'), 1);
    const answer = await post({ snapshot_id: id });
    assert.deepEqual([answer.status, answer.json.code], [404, 'not_found']);
    assert.equal(await countMachines(), 1);
  });

  it('is part of what an Idempotency-Key stands for', async () => {
    const [a, b] = [await snap(await create()), await snap(await create())];
    const headers = { 'idempotency-key': 'of a snapshot' };
    const first = await post({ snapshot_id: a }, { headers });
    assert.equal(first.status, 201);
    assert.equal((await post({ snapshot_id: b }, { headers })).status, 409);
    assert.equal((await post({}, { headers })).status, 409);
    const replay = await post({ snapshot_id: a.toUpperCase() }, { headers });
    assert.deepEqual([replay.status, replay.json.id], [200, first.json.id]);
    assert.equal((await api('DELETE', `/v1/snapshots/${a}`)).status, 204);
    assert.equal((await post({ snapshot_id: a }, { headers })).status, 200, 'a replay needs no snapshot');
  });
});

describe('POST /v1/machines with root_volume_id', () => {
  it('makes a machine of the kept disk, which is no volume any more and counts once', async () => {
    const id = await keepDisk({ rootfs_size_gb: 12, stack: 'node' });
    const before = await used('storage_gb');
    const answer = await post({ root_volume_id: id });
    assert.equal(answer.status, 201, answer.text);
    const { root_volume_id, snapshot_id, stack, rootfs_size_gb } = answer.json;
    assert.deepEqual([root_volume_id, snapshot_id, stack, rootfs_size_gb], [id, null, 'node', 12]);
    assert.deepEqual([await volumeIds(), await volumeRow(id)], [[], undefined]);
    assert.equal(await used('storage_gb'), before);
    assert(!host.volumes.has(id));
    assert.equal((await api('POST', `/v1/machines/${answer.json.id}/stop`)).status, 200);
    assert.equal((await api('POST', `/v1/machines/${answer.json.id}/start`)).status, 200);
    const gone = await api('DELETE', `/v1/machines/${answer.json.id}`);
    assert.deepEqual([gone.status, gone.json.root_volume_id], [200, null]);
    assert.equal(await used('storage_gb'), before - 12);
    assert.deepEqual(await volumeIds(), [], 'it was deleted like any disk');
  });

  it('kept again is a volume of a new id', async () => {
    const id = await keepDisk();
    const { json } = await post({ root_volume_id: id });
    const again = (await api('DELETE', `/v1/machines/${json.id}?preserve_storage=true`)).json.root_volume_id;
    assert.notEqual(again, id);
    assert.deepEqual(await volumeIds(), [again]);
  });

  it('charges the difference only, so that a full account can still boot from its own disk', async () => {
    const id = await keepDisk({ rootfs_size_gb: 12 });
    const before = await used('storage_gb');
    await sql`update accounts set limit_storage_gb = ${before} where id = ${accountId}`.execute(db);
    const larger = await post({ root_volume_id: id, rootfs_size_gb: 13 });
    assert.deepEqual([larger.status, larger.json.code], [403, 'quota_exceeded']);
    assert.match(larger.json.detail, /storage_gb .* used 12, requested 1, limit 12/);
    assert.equal((await volumeRow(id))?.state, 'available');
    assert.equal((await post({ root_volume_id: id })).status, 201);
    assert.equal(await used('storage_gb'), before);
  });

  it('is possible for an account over its limit, and grows when there is room', async () => {
    const [a, b] = [await keepDisk({ rootfs_size_gb: 12 }), await keepDisk({ rootfs_size_gb: 12 })];
    await sql`update accounts set limit_storage_gb = 5 where id = ${accountId}`.execute(db);
    assert.equal((await post({ root_volume_id: a })).status, 201);
    await sql`update accounts set limit_storage_gb = null where id = ${accountId}`.execute(db);
    const grown = await post({ root_volume_id: b, rootfs_size_gb: 20 });
    assert.deepEqual([grown.status, grown.json.rootfs_size_gb], [201, 20]);
    assert.equal(await used('storage_gb'), 32);
  });

  it('is refused with a smaller size, another stack, a data volume, one in error, an absent one and another’s', async () => {
    const id = await keepDisk({ rootfs_size_gb: 12 });
    const data = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    const smaller = await post({ root_volume_id: id, rootfs_size_gb: 11 });
    assert.deepEqual(
      [smaller.status, smaller.json.detail],
      [400, 'rootfs_size_gb must be at least 12, the size of the volume.'],
    );
    assert.equal((await post({ root_volume_id: id, stack: 'node' })).status, 400);
    const ofData = await post({ root_volume_id: data });
    assert.deepEqual([ofData.status, ofData.json.code], [409, 'conflict']);
    assert.match(ofData.json.detail, /data volume/);
    await db.updateTable('volumes').set({ state: 'error', error: 'It broke.' }).where('id', '=', id).execute();
    const broken = await post({ root_volume_id: id });
    assert.deepEqual([broken.status, broken.json.detail], [409, 'The volume is in error: It broke.']);
    await db.updateTable('volumes').set({ state: 'available', error: null }).where('id', '=', id).execute();
    const foreign = await post({ root_volume_id: id }, { key: keys.other });
    const absent = await post({ root_volume_id: randomUUID() }, { key: keys.other });
    assert.deepEqual([foreign.status, foreign.json], [404, absent.json]);
    assert.equal((await volumeRow(id))?.state, 'available');
    assert.equal(await countMachines(), 0);
  });

  it('of two at once one gets it', async () => {
    for (let round = 0; round < 10; round++) {
      const id = await keepDisk();
      const answers = await Promise.all(
        Array.from({ length: 4 }, (_, index) =>
          post({ root_volume_id: id, memory_mb: 128 }, { plane: bed.replicas[index % 2] ?? bed.plane }),
        ),
      );
      const statuses = answers.map((answer) => answer.status).sort();
      assert.equal(statuses[0], 201, answers.map((answer) => answer.text).join());
      assert(
        statuses.slice(1).every((status) => status === 409 || status === 404),
        statuses.join(),
      );
    }
  });

  it('of two at once with one Idempotency-Key is one machine, answered twice', async () => {
    for (let round = 0; round < 10; round++) {
      const id = await keepDisk();
      const headers = { 'idempotency-key': `round ${round}` };
      const answers = await Promise.all(
        [0, 1, 0].map((replica) =>
          post({ root_volume_id: id, memory_mb: 128 }, { headers, plane: bed.replicas[replica] ?? bed.plane }),
        ),
      );
      assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 200, 201]);
      assert.equal(new Set(answers.map((answer) => answer.json.id)).size, 1);
    }
  });

  it('while it is taken is a 409, it is in no list and cannot be deleted; a create that fails gives it back', async () => {
    const id = await keepDisk({ rootfs_size_gb: 12 });
    const before = await used('storage_gb');
    host.fault('ensure', 'hangThenFail', 1);
    const failing = post({ root_volume_id: id, rootfs_size_gb: 20 });
    await bed.settled(async () => (await volumeRow(id))?.state === 'taken');
    const second = await post({ root_volume_id: id });
    assert.deepEqual([second.status, second.json.code], [409, 'conflict']);
    assert.match(second.json.detail, /in use/);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 404);
    assert.equal(await used('storage_gb'), before + 8);
    host.heal();
    assert.equal((await failing).status, 500);
    assert.deepEqual(await volumeIds(), [id]);
    const row = await volumeRow(id);
    assert.deepEqual([row?.state, row?.machine_id, row?.size_gb], ['available', null, 12]);
    assert.equal(await used('storage_gb'), before);
    assert.deepEqual(host.volumes.get(id), { volume_id: id, size_gb: 12, kind: 'root' });
    assert.equal((await post({ root_volume_id: id })).status, 201, 'and it boots');
  });

  it('that fails after its disk has grown gives back a volume that counts as what it is', async () => {
    const id = await keepDisk({ rootfs_size_gb: 12 });
    host.fault('ensure', 'hangAfter', 1);
    const creating = post({ root_volume_id: id, rootfs_size_gb: 20 });
    await bed.settled(() => !host.volumes.has(id));
    const { json } = await api('GET', '/v1/machines');
    const machine = host.machines.get(json.machines[0].id);
    assert(machine?.taken);
    machine.taken = { ...machine.taken, size_gb: 20 };
    assert.equal((await api('DELETE', `/v1/machines/${json.machines[0].id}`)).status, 200);
    host.heal();
    await creating;
    assert.deepEqual([(await volumeRow(id))?.size_gb, await used('storage_gb')], [20, 20]);
    host.fault('ensure', 'failAfter', 1);
    assert.equal((await post({ root_volume_id: id, rootfs_size_gb: 30 })).status, 500);
    assert.deepEqual([(await volumeRow(id))?.size_gb, await used('storage_gb')], [20, 20]);
  });

  for (const keep of [false, true]) {
    it(`that is deleted while it is made${keep ? ', keeping the disk,' : ''} gives it back`, async () => {
      const id = await keepDisk({ rootfs_size_gb: 12 });
      host.fault('ensure', 'hangAfter', 1);
      const creating = post({ root_volume_id: id });
      await bed.settled(() => !host.volumes.has(id));
      const { json } = await api('GET', '/v1/machines');
      const answer = await api('DELETE', `/v1/machines/${json.machines[0].id}?preserve_storage=${keep}`);
      assert.deepEqual([answer.status, answer.json.root_volume_id], [200, id]);
      host.heal();
      assert.equal((await creating).status, 409);
      assert.deepEqual(await volumeIds(), [id]);
      assert.equal(await used('storage_gb'), 12);
      assert(host.volumes.has(id));
    });
  }

  it('whose disk its host has lost is refused, and is an error from then on', async () => {
    const id = await keepDisk();
    host.volumes.delete(id);
    const answer = await post({ root_volume_id: id });
    assert([404, 409].includes(answer.status), answer.text);
    await bed.settled(async () => (await api('GET', `/v1/volumes/${id}`)).json.state === 'error');
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
  });
});

describe('a create from an image', () => {
  it('asks the database for nothing about snapshots and volumes', async () => {
    const { json } = await post({});
    assert.deepEqual([json.snapshot_id, json.root_volume_id], [null, null]);
    const spec = host.machines.get(json.id)?.wanted.spec;
    assert(spec && !('snapshot_id' in spec) && !('root_volume_id' in spec));
  });
});
