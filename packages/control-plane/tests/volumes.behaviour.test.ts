// Tests of volumes kept from a deleted machine: only their account sees them, they count toward its quota, and each
// volume is deleted once.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import type { Fault } from './support/fake-host/calls.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2 });
const { api, host, keys } = bed;
const { db } = bed.plane.app;
const { accountId } = bed;
const SIZE_GB = 12;

/** Creates a machine and deletes it with its disk kept. Returns the id of that root disk. */
async function makeVolume(): Promise<string> {
  const created = await api('POST', '/v1/machines', { body: { rootfs_size_gb: SIZE_GB } });
  assert.equal(created.status, 201, created.text);
  const answer = await api('DELETE', `/v1/machines/${created.json.id}?preserve_storage=true`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json.root_volume_id;
}

const listIds = async (query = ''): Promise<string[]> => {
  const answer = await api('GET', `/v1/volumes${query}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json.volumes.map((volume: { id: string }) => volume.id);
};
const rowOf = (id: string) => db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
const usedStorage = async () =>
  (await db.selectFrom('accounts').select('used_storage_gb').where('id', '=', accountId).executeTakeFirstOrThrow())
    .used_storage_gb;
const deletedEntries = async (id: string) => {
  const rows = await db.selectFrom('activity').selectAll().where('action', '=', 'volume.deleted').execute();
  return rows.filter((row) => row.metadata.volume_id === id);
};
const removeAll = async () => {
  for (const id of await listIds()) assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
};

afterEach(async () => {
  host.heal();
  await removeAll();
});

describe('volume get and list', () => {
  it('shows a kept root disk as an available volume', async () => {
    const id = await makeVolume();
    const { status, json } = await api('GET', `/v1/volumes/${id}`);
    assert.equal(status, 200);
    const { created_at, ...rest } = json;
    assert.match(created_at, /^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/);
    assert.deepEqual(rest, {
      id,
      account_id: accountId,
      name: '',
      kind: 'root',
      size_gb: SIZE_GB,
      state: 'available',
      machine_id: null,
      mount_path: null,
      error: null,
    });
    assert.deepEqual(await listIds(), [id]);
    await checkBooks(bed);
  });

  it('filters by kind and state, and refuses what is neither', async () => {
    const id = await makeVolume();
    assert.deepEqual(await listIds('?kind=root&state=available'), [id]);
    assert.deepEqual(await listIds('?kind=data'), []);
    assert.deepEqual(await listIds('?state=attached'), []);
    for (const query of ['?kind=tape', '?state=gone', '?machine=x']) {
      assert.deepEqual((await api('GET', `/v1/volumes${query}`)).json.code, 'validation_error', query);
    }
  });

  it('pages newest first, and its cursors are of this list only', async () => {
    const ids = [await makeVolume(), await makeVolume(), await makeVolume()].reverse();
    assert.deepEqual(await listIds(), ids);
    const first = (await api('GET', '/v1/volumes?page_size=2')).json;
    const second = (await api('GET', `/v1/volumes?page_size=2&cursor=${first.next_cursor}`)).json;
    assert.deepEqual(
      [...first.volumes, ...second.volumes].map((volume) => volume.id),
      ids,
    );
    assert.equal(second.next_cursor, '');
    for (const path of [`/v1/volumes?kind=root&cursor=`, `/v1/machines?cursor=`]) {
      assert.equal((await api('GET', `${path}${first.next_cursor}`)).status, 400, path);
    }
    assert.equal((await api('GET', `/v1/volumes?cursor=${first.next_cursor}`, { key: keys.other })).status, 400);
  });

  it('is for a read key too; a delete is not', async () => {
    const id = await makeVolume();
    assert.equal((await api('GET', '/v1/volumes', { key: keys.read })).status, 200);
    assert.equal((await api('GET', `/v1/volumes/${id}`, { key: keys.read })).status, 200);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`, { key: keys.read })).json.code, 'forbidden');
    assert.equal((await api('GET', '/v1/volumes', { key: null })).status, 401);
  });

  it("another account's volume is absent in every way", async () => {
    const id = await makeVolume();
    const key = keys.other;
    assert.deepEqual((await api('GET', '/v1/volumes', { key })).json, { volumes: [] });
    for (const method of ['GET', 'DELETE']) {
      const foreign = await api(method, `/v1/volumes/${id}`, { key });
      const absent = await api(method, `/v1/volumes/${randomUUID()}`, { key });
      assert.deepEqual([foreign.status, foreign.json], [404, absent.json], method);
    }
    assert.ok(host.volumes.has(id));
  });
});

describe('volume delete', () => {
  it('removes the disk, gives its storage back and writes one entry', async () => {
    const before = await usedStorage();
    const id = await makeVolume();
    assert.equal(await usedStorage(), before + SIZE_GB);
    const answer = await api('DELETE', `/v1/volumes/${id}`);
    assert.deepEqual([answer.status, answer.text], [204, '']);
    assert.deepEqual([host.volumes.has(id), await rowOf(id), await usedStorage()], [false, undefined, before]);
    const [entry, ...more] = await deletedEntries(id);
    assert.deepEqual(
      [entry?.account_id, entry?.actor, entry?.metadata, more],
      [accountId, 'user', { volume_id: id }, []],
    );
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 404);
    assert.equal((await api('GET', `/v1/volumes/${id}`)).status, 404);
    await checkBooks(bed);
  });

  it('of many at once, on two replicas, is done once, and each gets its result', async () => {
    const before = await usedStorage();
    const id = await makeVolume();
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('DELETE', `/v1/volumes/${id}`, { plane: bed.replicas[index % 2] ?? bed.plane }),
      ),
    );
    const statuses = answers.map((answer) => answer.status);
    // A delete that arrives after the volume is gone gets 404.
    assert(statuses.includes(204) && statuses.every((status) => status === 204 || status === 404), statuses.join());
    assert.equal(await usedStorage(), before);
    assert.equal((await deletedEntries(id)).length, 1);
    await checkBooks(bed);
  });

  it('of an attached volume is a conflict and changes nothing', async () => {
    const { id } = (await api('POST', '/v1/volumes', { body: { size_gb: SIZE_GB } })).json;
    const machineId = (await api('POST', '/v1/machines')).json.id;
    const attached = await api('POST', `/v1/volumes/${id}/attach`, { body: { machine_id: machineId } });
    assert.equal(attached.status, 200, attached.text);
    const answer = await api('DELETE', `/v1/volumes/${id}`);
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.deepEqual([(await rowOf(id))?.state, host.volumes.has(id)], ['attached', true]);
    assert.deepEqual(await listIds('?state=attached'), [id]);
    assert.equal((await api('POST', `/v1/volumes/${id}/detach`)).status, 200);
    await checkBooks(bed);
  });

  const faults: [string, Fault, number][] = [
    ['drops the connection before', 'drop', 503],
    ['drops the connection after', 'dropAfter', 503],
    ['fails', 'fail', 500],
  ];
  for (const [name, fault, status] of faults) {
    it(`while the host ${name} is ${status}, absent at once, and finished by the reconciler`, async () => {
      const before = await usedStorage();
      const id = await makeVolume();
      host.fault('deleteVolume', fault);
      assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, status);
      assert.equal((await api('GET', `/v1/volumes/${id}`)).status, 404);
      assert.deepEqual(await listIds(), []);
      assert.equal(await usedStorage(), before + SIZE_GB, 'it counts until its disk is gone');
      const again = api('DELETE', `/v1/volumes/${id}`);
      host.heal();
      await bed.settled(async () => (await rowOf(id)) === undefined);
      // The request joins the delete that is under way (204) or arrives after its end (404).
      assert([204, 404].includes((await again).status));
      assert.deepEqual([host.volumes.has(id), await usedStorage()], [false, before]);
      assert.equal((await deletedEntries(id)).length, 1);
      await checkBooks(bed);
    });
  }

  it('while the host is away is 503 host_unavailable with Retry-After', async () => {
    const id = await makeVolume();
    await host.away();
    await bed.settled(() => bed.replicas.every((replica) => replica.app.hosts.reachableIds().length === 0));
    const answer = await api('DELETE', `/v1/volumes/${id}`);
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    assert.ok(answer.headers.get('retry-after'));
    await host.listen();
    await bed.settled(async () => (await rowOf(id)) === undefined);
    assert.ok(!host.volumes.has(id));
    await checkBooks(bed);
  });
});

describe('DELETE /v1/machines/{id}?preserve_storage=true', () => {
  it('keeps the root disk as a volume that still counts', async () => {
    const before = await usedStorage();
    const { json } = await api('POST', '/v1/machines', { body: { rootfs_size_gb: SIZE_GB } });
    const answer = await api('DELETE', `/v1/machines/${json.id}?preserve_storage=true`);
    assert.deepEqual([answer.status, answer.json.state], [200, 'destroyed']);
    const [id, ...more] = await listIds();
    assert.ok(id);
    assert.deepEqual([answer.json.root_volume_id, more], [id, []]);
    const row = await rowOf(id);
    assert.deepEqual([row?.stack, row?.size_gb, row?.state], ['base', SIZE_GB, 'available']);
    assert.deepEqual(host.volumes.get(id), { volume_id: id, size_gb: SIZE_GB, kind: 'root' });
    assert.equal(await usedStorage(), before + SIZE_GB);
    await checkBooks(bed);
  });

  it('ends with one volume when the host fails half-way', async () => {
    for (const fault of ['drop', 'dropAfter', 'fail'] as const) {
      const { json } = await api('POST', '/v1/machines');
      host.fault('delete', fault);
      assert.ok((await api('DELETE', `/v1/machines/${json.id}?preserve_storage=true`)).status >= 500, fault);
      assert.deepEqual(await listIds(), [], 'no volume before its disk is safe');
      host.heal();
      await bed.settled(async () => (await listIds()).length === 1);
      assert.deepEqual([...host.volumes.keys()], await listIds(), fault);
      await checkBooks(bed);
      await removeAll();
    }
  });
});

describe('a delete that keeps the disk', () => {
  it('stays one when its host died in it and tells first that the machine stopped', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    host.fault('delete', 'drop');
    assert.equal((await api('DELETE', `/v1/machines/${id}?preserve_storage=true`)).status, 503);
    const machine = host.machines.get(id);
    assert(machine);
    // The machine stopped and took the generation of the delete before the host died.
    machine.report = { ...machine.report, generation: machine.report.generation + 1 };
    host.end(id, 'stopped', null);
    host.heal();
    await bed.settled(async () => (await api('GET', `/v1/machines/${id}`)).json.state === 'destroyed');
    const kept = (await api('GET', `/v1/machines/${id}`)).json.root_volume_id;
    assert.deepEqual(await listIds(), [kept]);
    assert(host.volumes.has(kept));
    const { activity } = (await api('GET', `/v1/machines/${id}/activity`)).json;
    assert.deepEqual(
      activity.map(({ action }: { action: string }) => action),
      ['machine.destroyed', 'machine.created'],
    );
    await checkBooks(bed);
  });

  it('of a machine whose disk is lost is a 409 and deletes nothing; without keeping it is deleted', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    const snapshot = (await api('POST', `/v1/machines/${id}/snapshots`)).json;
    host.machines.delete(id);
    await bed.settled(async () => (await api('GET', `/v1/machines/${id}`)).json.state === 'error');
    const answer = await api('DELETE', `/v1/machines/${id}?preserve_storage=true&delete_snapshots=true`);
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.match(answer.json.detail, /disk of the machine is not there any more/);
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'error');
    assert.deepEqual(await listIds(), []);
    assert.equal((await api('GET', `/v1/snapshots/${snapshot.id}`)).json.state, 'ready');
    assert.equal((await api('DELETE', `/v1/machines/${id}?delete_snapshots=true`)).status, 200);
    await checkBooks(bed);
  });
});
