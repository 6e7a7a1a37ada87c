// Tests of machines that are created with data volumes: the volumes are attached at the first boot, all refusals of an
// attach hold, and a create that fails leaves the volumes available.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';
import { createVolumeActs, refusalOf } from './support/volumes.ts';

const bed = await startTestBed({ replicas: 2 });
const { api, host, keys } = bed;
const { db } = bed.plane.app;
const acts = createVolumeActs(bed);

type Wanted = { volume_id: string; mount_path?: string };
const create = (volumes: readonly Wanted[], options: Parameters<typeof api>[2] & { body?: object } = {}) =>
  api('POST', '/v1/machines', { ...options, body: { memory_mb: 128, volumes, ...options.body } });
const volumeOf = async (id: string) => (await api('GET', `/v1/volumes/${id}`)).json;
const makeVolumes = async (count: number): Promise<string[]> => {
  const ids: string[] = [];
  for (let index = 0; index < count; index++) ids.push(await acts.makeVolume());
  return ids;
};
/** Checks that nothing of a failed create is left at the volume. */
const checkUntouched = async (id: string) => {
  const { state, machine_id, mount_path } = (await acts.rowOf(id)) ?? {};
  assert.deepEqual({ state, machine_id, mount_path }, { state: 'available', machine_id: null, mount_path: null });
  assert.deepEqual(await acts.entriesOf(id), ['volume.created']);
};

afterEach(async () => {
  host.heal();
  const { machines } = (await api('GET', '/v1/machines')).json;
  for (const { id } of machines) await api('DELETE', `/v1/machines/${id}`);
  const { volumes } = (await api('GET', '/v1/volumes')).json;
  for (const { id } of volumes) assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
  await checkBooks(bed);
});

describe('a machine created with volumes', () => {
  it('has them when it answers, and keeps them until it is destroyed', async () => {
    const [first = '', second = ''] = await makeVolumes(2);
    const made = await create([{ volume_id: second.toUpperCase(), mount_path: '/a' }, { volume_id: first }]);
    assert.equal(made.status, 201, made.text);
    const { id } = made.json;
    const mounts = { [first]: `/mnt/${first}`, [second]: '/a' };
    assert.deepEqual(acts.onHost(id), mounts);
    assert.equal(host.callsOf('ensure'), 1, 'they were there at the first boot');
    for (const [volumeId, path] of Object.entries(mounts)) {
      const { state, machine_id, mount_path } = await volumeOf(volumeId);
      assert.deepEqual([state, machine_id, mount_path], ['attached', id, path]);
      assert.deepEqual(await acts.entriesOf(volumeId), ['volume.created', 'volume.attached']);
    }
    const { activity } = (await api('GET', `/v1/machines/${id}/activity`)).json;
    assert.deepEqual(activity.map(({ action }: { action: string }) => action).sort(), [
      'machine.created',
      'volume.attached',
      'volume.attached',
    ]);
    await checkBooks(bed);
    await api('POST', `/v1/machines/${id}/stop`);
    await api('POST', `/v1/machines/${id}/start`);
    assert.deepEqual(acts.onHost(id), mounts);
    assert.equal((await acts.detach(first)).status, 200);
    await api('DELETE', `/v1/machines/${id}`);
    assert.equal((await volumeOf(second)).state, 'available');
  });

  it('may boot from a snapshot or a root volume', async () => {
    const [first = '', second = ''] = await makeVolumes(2);
    const machineId = await acts.makeMachine();
    const snapshot = (await api('POST', `/v1/machines/${machineId}/snapshots`)).json.id;
    const ofSnapshot = await create([{ volume_id: first }], { body: { snapshot_id: snapshot } });
    assert.equal(ofSnapshot.status, 201, ofSnapshot.text);
    assert.deepEqual(Object.keys(acts.onHost(ofSnapshot.json.id)), [first]);
    await api('DELETE', `/v1/snapshots/${snapshot}`);
    const root = (await api('DELETE', `/v1/machines/${machineId}?preserve_storage=true`)).json.root_volume_id;
    const ofRoot = await create([{ volume_id: second }], { body: { root_volume_id: root } });
    assert.equal(ofRoot.status, 201, ofRoot.text);
    assert.deepEqual(Object.keys(acts.onHost(ofRoot.json.id)), [second]);
    assert.equal((await api('GET', `/v1/volumes/${root}`)).status, 404);
  });

  it('is one machine for all requests with its Idempotency-Key, in any order of the volumes', async () => {
    const [first = '', second = ''] = await makeVolumes(2);
    const headers = { 'idempotency-key': randomUUID() };
    const made = await create([{ volume_id: first }, { volume_id: second }], { headers });
    const again = await create([{ volume_id: second, mount_path: `/mnt/${second}` }, { volume_id: first }], {
      headers,
    });
    assert.deepEqual([made.status, again.status, again.json.id], [201, 200, made.json.id]);
    const other = await create([{ volume_id: first }], { headers });
    assert.deepEqual(refusalOf(other), [409, 'conflict']);
  });
});

describe('a create with volumes is refused', () => {
  it('for a volume or a path that is there twice, for a forbidden path, and for nine', async () => {
    const [id = ''] = await makeVolumes(1);
    for (const [volumes, why] of [
      [[{ volume_id: id }, { volume_id: id.toUpperCase(), mount_path: '/b' }], /twice/],
      [
        [
          { volume_id: id, mount_path: '/a' },
          { volume_id: randomUUID(), mount_path: '/a' },
        ],
        /mount_path \/a twice/,
      ],
      [[{ volume_id: id, mount_path: '/proc/x' }], /mount_path must not be at or below/],
      [[{ volume_id: id, mount_path: 'relative' }], /mount_path/],
      [[{ volume_id: id, size: 1 } as Wanted], /size/],
      [Array.from({ length: 9 }, () => ({ volume_id: randomUUID() })), /8/],
    ] as const) {
      const answer = await create(volumes);
      assert.deepEqual(refusalOf(answer), [400, 'validation_error'], answer.text);
      assert.match(answer.json.detail, why);
    }
    await checkUntouched(id);
  });

  it('for an absent volume as for one of another account, before the balance is looked at', async () => {
    const [own = ''] = await makeVolumes(1);
    const foreign = await acts.makeVolume(keys.other);
    const absent = await create([{ volume_id: own }, { volume_id: randomUUID() }]);
    const answer = await create([{ volume_id: own }, { volume_id: foreign }]);
    assert.deepEqual([answer.status, answer.json], [404, absent.json]);
    await sql`update accounts set billing_mode = 'prepaid' where id = ${bed.accountId}`.execute(db);
    assert.equal((await create([{ volume_id: randomUUID() }])).status, 404);
    assert.equal((await create([{ volume_id: own }])).status, 402);
    await sql`update accounts set billing_mode = 'unmetered' where id = ${bed.accountId}`.execute(db);
    await checkUntouched(own);
    assert.equal((await api('DELETE', `/v1/volumes/${foreign}`, { key: keys.other })).status, 204);
  });

  it('for a root disk, an attached volume and one in error', async () => {
    const [lost = '', free = ''] = await makeVolumes(2);
    const machineId = await acts.makeMachine();
    const attached = await acts.attached(machineId);
    const kept = await acts.makeMachine();
    const root = (await api('DELETE', `/v1/machines/${kept}?preserve_storage=true`)).json.root_volume_id;
    host.volumes.delete(lost);
    await bed.settled(async () => (await volumeOf(lost)).state === 'error');
    for (const [id, why] of [
      [root, /root disk/],
      [attached, /attached to machine/],
      [lost, /in error: The host has lost it/],
    ] as const) {
      const answer = await create([{ volume_id: free }, { volume_id: id }]);
      assert.deepEqual(refusalOf(answer), [409, 'conflict'], answer.text);
      assert.match(answer.json.detail, why);
    }
    await checkUntouched(free);
    const both = await create([{ volume_id: root }], { body: { root_volume_id: root } });
    assert.deepEqual(refusalOf(both), [409, 'conflict']);
  });

  it('for volumes on a host that is away, and when the only host takes nothing', async () => {
    const [first = '', second = ''] = await makeVolumes(2);
    const other = randomUUID();
    await sql`insert into hosts (id, version, boot_id, isolation, network, subnet, cpus, memory_mb, images)
      select ${other}, version, boot_id, isolation, network, '10.84.0.0/16', cpus, memory_mb, images
      from hosts`.execute(db);
    await db.updateTable('volumes').set({ host_id: other }).where('id', '=', second).execute();
    const apart = await create([{ volume_id: first }, { volume_id: second }]);
    assert.deepEqual(refusalOf(apart), [503, 'host_unavailable']);
    const machineId = await acts.makeMachine();
    const snapshot = (await api('POST', `/v1/machines/${machineId}/snapshots`)).json.id;
    const fromSnapshot = await create([{ volume_id: second }], { body: { snapshot_id: snapshot } });
    assert.deepEqual(refusalOf(fromSnapshot), [503, 'host_unavailable']);
    assert.equal((await api('DELETE', `/v1/snapshots/${snapshot}`)).status, 204);
    assert.deepEqual(refusalOf(await create([{ volume_id: second }])), [503, 'host_unavailable']);
    await db.updateTable('volumes').set({ host_id: FAKE_HOST_ID }).where('id', '=', second).execute();
    await db.deleteFrom('hosts').where('id', '=', other).execute();
    const full = await create([{ volume_id: first }], { body: { memory_mb: 65_537 } });
    assert.deepEqual(refusalOf(full), [400, 'validation_error']);
    await sql`update hosts set draining = true`.execute(db);
    const drained = await create([{ volume_id: first }]);
    await sql`update hosts set draining = false`.execute(db);
    assert.deepEqual(refusalOf(drained), [503, 'fleet_capacity']);
    assert.match(drained.json.detail, /host of the volume/);
    await checkUntouched(first);
  });

  it('while an operation of a volume is under way', async () => {
    const [id = ''] = await makeVolumes(1);
    const machineId = await acts.makeMachine();
    host.fault('ensure', 'hang');
    const before = host.callsOf('ensure');
    const attaching = acts.attach(id, machineId);
    await bed.settled(() => host.callsOf('ensure') > before);
    const refused = await create([{ volume_id: id }]);
    assert.deepEqual(refusalOf(refused), [409, 'conflict']);
    assert.match(refused.json.detail, /attach of volume .* is under way/);
    host.heal();
    assert.equal((await attaching).status, 200);
  });

  it('for all but one of ten that want the same volume', async () => {
    const [id = ''] = await makeVolumes(1);
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        create([{ volume_id: id }], { plane: bed.replicas[index % 2] ?? bed.plane }),
      ),
    );
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, ...Array(9).fill(409)]);
  });
});

describe('until the machine runs', () => {
  it('its volumes are available to readers and to nobody else', async () => {
    const [id = ''] = await makeVolumes(1);
    const machineId = await acts.makeMachine();
    host.fault('ensure', 'hang', 1);
    const before = host.callsOf('ensure');
    const creating = create([{ volume_id: id }]);
    await bed.settled(() => host.callsOf('ensure') > before);
    const { state, machine_id, mount_path } = await volumeOf(id);
    assert.deepEqual([state, machine_id, mount_path], ['available', null, null]);
    assert.deepEqual(refusalOf(await acts.attach(id, machineId)), [409, 'conflict']);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 409);
    assert.deepEqual(await acts.entriesOf(id), ['volume.created']);
    const detaching = acts.detach(id);
    host.heal();
    assert.equal((await creating).status, 201);
    assert.equal((await detaching).status, 200, 'a detach waits for the create');
    assert.deepEqual(await acts.entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
  });

  it('a create that fails leaves them available, and the next one has them', async () => {
    const [id = ''] = await makeVolumes(1);
    host.fault('ensure', 'failAfter', 1);
    assert.equal((await create([{ volume_id: id }])).status, 500);
    await bed.settled(async () => (await acts.rowOf(id))?.machine_id === null);
    await checkUntouched(id);
    assert.equal((await create([{ volume_id: id }])).status, 201);
  });

  it('a delete of the machine leaves them available', async () => {
    const [id = ''] = await makeVolumes(1);
    host.fault('ensure', 'hang', 1);
    const before = host.callsOf('ensure');
    const creating = create([{ volume_id: id }]);
    await bed.settled(() => host.callsOf('ensure') > before);
    const machineId = (await acts.rowOf(id))?.machine_id;
    assert.equal((await api('DELETE', `/v1/machines/${machineId}`)).status, 200);
    host.heal();
    assert.equal((await creating).status, 409);
    await checkUntouched(id);
  });
});
