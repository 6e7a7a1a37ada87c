// Tests snapshots in an object store: they are published once, other hosts fetch them when a machine is made there, and
// damage and cuts on the way are noticed.
import assert from 'node:assert/strict';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { bringSnapshot } from '../src/blobs/bring.ts';
import { findImagePublication, listBlobs, listParts } from '../src/blobs/store.ts';
import { createAuditActs } from './support/audit.ts';
import { diskText, startBlobBed, writeDisk } from './support/blob-bed.ts';

const bed = await startBlobBed(3, { blobsMs: { every: 100, kept: 3_600_000, images: 100, strays: 3_600_000 } });
const { api, hosts, store, settled, makeMachine } = bed;
const { app } = bed.plane;
const { db } = app;

/** Makes a machine on the first host only, writes to it, and takes a snapshot. */
async function makeSnapshot(text: string, body: object = {}): Promise<{ machineId: string; id: string }> {
  await onlyHosts(0);
  const machineId = await makeMachine();
  writeDisk(first(), machineId, text);
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`, { body });
  assert.equal(answer.status, 201, answer.text);
  return { machineId, id: answer.json.id };
}
const first = () => hosts[0] ?? assert.fail();
const second = () => hosts[1] ?? assert.fail();
const onlyHosts = async (...indices: number[]) => {
  for (const [index, host] of hosts.entries()) await host.setReachable(indices.includes(index));
};
const isPublished = async (id: string) => {
  const row = await db.selectFrom('publications').selectAll().where('snapshot_id', '=', id).executeTakeFirst();
  return row?.published_at != null;
};
const published = async (text: string) => {
  const made = await makeSnapshot(text);
  await settled(() => isPublished(made.id));
  return made;
};
const hostOf = async (machineId: string) =>
  (await db.selectFrom('machines').select('host_id').where('id', '=', machineId).executeTakeFirstOrThrow()).host_id;

describe('a snapshot in the object store', () => {
  it('boots on a host that did not take it, with the disk of that moment', async () => {
    const { id, machineId } = await published('before');
    writeDisk(first(), machineId, ' and after');
    await onlyHosts(1);
    const copy = await makeMachine({ snapshot_id: id });
    assert.equal(await hostOf(copy), second().id);
    assert.equal(diskText(second(), copy), 'before');
    writeDisk(second(), copy, ', and on');
    assert.equal(diskText(second(), copy), 'before, and on');
    assert.equal(diskText(first(), machineId), 'before and after');
    assert.deepEqual(await second().agent.audit.look(), []);
  });

  it('is made on its own host while that has room, and moves nothing', async () => {
    const { id } = await published('at home');
    await onlyHosts(0, 1, 2);
    assert.equal(await hostOf(await makeMachine({ snapshot_id: id })), first().id);
    assert.ok(!hosts.slice(1).some(({ agent }) => agent.snapshots.copyIds().includes(id)));
  });

  it('is stored once: a second snapshot brings only its own layer', async () => {
    const { id, machineId } = await published('one');
    const before = new Set(store.keys());
    writeDisk(first(), machineId, ' two');
    const again = (await api('POST', `/v1/machines/${machineId}/snapshots`, { body: {} })).json.id;
    await settled(() => isPublished(again));
    const blobs = await Promise.all([id, again].map((one) => listBlobs(db, one)));
    const [ofFirst, ofSecond] = blobs.map((list) => list.map(({ sha256 }) => sha256));
    const added = ofSecond?.filter((sha256) => !ofFirst?.includes(sha256)) ?? [];
    assert.equal(added.length, 1);
    assert.equal(store.keys().filter((key) => !before.has(key)).length, 1);
  });

  it('is only on its host until it is published, and a create elsewhere is refused', async () => {
    const { id } = await published('hidden');
    await db.updateTable('publications').set({ published_at: null }).where('snapshot_id', '=', id).execute();
    await onlyHosts(1);
    const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, snapshot_id: id } });
    assert.deepEqual([answer.status, answer.json.code], [503, 'fleet_capacity'], answer.text);
  });

  it('a copy and its parts are gone from other hosts after the snapshot was deleted, and its machines live on', async () => {
    const { id } = await published('short-lived');
    await onlyHosts(1);
    const copy = await makeMachine({ snapshot_id: id });
    assert.deepEqual(second().agent.snapshots.copyIds().includes(id), true);
    assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 204);
    await settled(() => !second().agent.snapshots.copyIds().includes(id));
    second().agent.garbage.collect();
    assert.equal(diskText(second(), copy), 'short-lived');
    assert.equal((await api('POST', `/v1/machines/${copy}/stop`)).status, 200);
    assert.equal((await api('POST', `/v1/machines/${copy}/start`)).status, 200);
  });

  it('an object that was changed is refused by its digest, and nothing of it is used (CTL-15)', async () => {
    const { id } = await published('genuine');
    const layer = (await listBlobs(db, id)).find(({ name }) => name.startsWith('layer/')) ?? assert.fail();
    const [part] = await listParts(db, layer.id);
    const file = store.fileOf(part?.key ?? assert.fail());
    const genuine = readFileSync(file);
    const changed = Buffer.from(genuine);
    changed[changed.length - 1] = (changed[changed.length - 1] ?? 0) ^ 1;
    writeFileSync(file, changed);
    await onlyHosts(2);
    const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, snapshot_id: id } });
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable'], answer.text);
    assert.doesNotMatch(answer.text, /http|X-Amz/, 'no signed address gets into an error');
    writeFileSync(file, genuine);
    const copy = await makeMachine({ snapshot_id: id });
    assert.equal(diskText(hosts[2] ?? assert.fail(), copy), 'genuine');
  });

  it('two creates on one host share what is fetched', async () => {
    const { id } = await published('shared');
    await onlyHosts(2);
    const copies = await Promise.all([1, 2, 3].map(() => makeMachine({ snapshot_id: id })));
    for (const copy of copies) assert.equal(diskText(hosts[2] ?? assert.fail(), copy), 'shared');
  });

  it('an object that is missing makes a create fail, and a repeated publication does not pretend', async () => {
    const { id } = await published('lost');
    const layer = (await listBlobs(db, id)).find(({ name }) => name.startsWith('layer/')) ?? assert.fail();
    for (const { key } of await listParts(db, layer.id)) rmSync(store.fileOf(key));
    await assert.rejects(bringSnapshot(app, second().id, id), { code: 'host_unavailable' });
  });

  it('the addresses that hosts get are in no log', () => {
    assert.doesNotMatch(bed.logged(), /X-Amz-Signature/);
  });
});

describe('a store that takes nothing', () => {
  const { look, fix } = createAuditActs(bed);
  const found = async () => (await look()).findings.filter(({ area }) => area === 'publication');
  const failing = async (kind: string) => {
    const { port } = bed.plane.metricsAddress;
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return Number(new RegExp(`^sandbar_publications_failing\\{kind="${kind}"\\} (\\d+)$`, 'm').exec(text)?.[1]);
  };

  const bucket = store.fileOf('');
  const setAway = () => renameSync(bucket, `${bucket}.away`);
  const setBack = () => renameSync(`${bucket}.away`, bucket);

  it('is a finding of the audit with the last error and a metric, until it takes things again', async () => {
    setAway();
    const { id } = await makeSnapshot('not stored');
    try {
      await first().addImage('kept', 'not stored');
      const hasFailed = sql<boolean>`published_at is null and last_error is not null`;
      const failed = () => db.selectFrom('publications').select('id').where(hasFailed).execute();
      await settled(async () => (await failed()).length === 2);
      // Six failures would take long, because a host tries each upload several times.
      await db.updateTable('publications').set({ failures: 6 }).where(hasFailed).execute();
      const findings = (await found()).toSorted((one, other) => (one.subject < other.subject ? -1 : 1));
      assert.deepEqual(
        findings.map(({ host_id, subject, fix }) => [host_id, subject, fix]),
        [id, 'kept'].map((subject) => [first().id, subject, 'try it now']),
      );
      const [ofSnapshot = '', ofImage = ''] = findings.map(({ detail }) => detail);
      assert.match(
        ofSnapshot,
        /^The snapshot is not in the object store after \d+ failed attempts\. The last error: .*404/,
      );
      assert.match(ofImage, /^The image is not in the object store after \d+ failed attempts\. The last error: .*404/);
      assert.doesNotMatch(ofSnapshot + ofImage, /http|X-Amz/);
      assert.deepEqual([await failing('snapshot'), await failing('image')], [1, 1]);
      const inAnHour = { due_at: sql<Date>`now() + interval '1 hour'` };
      await db.updateTable('publications').set(inAnHour).where('failures', '>', 5).execute();
    } finally {
      setBack();
    }
    await fix();
    await settled(() => isPublished(id));
    await settled(async () => (await found()).length === 0);
  });

  it('is no finding when a publication has failed a few times or is not possible, or when its snapshot is in error', async () => {
    const { id } = await published('not possible');
    const row = db.updateTable('publications').where('id', '=', id);
    await row.set({ published_at: null, failures: 9, due_at: null }).execute();
    assert.deepEqual(await found(), []);
    await row.set({ due_at: sql<Date>`now() + interval '1 hour'` }).execute();
    assert.equal((await found()).length, 1);
    await row.set({ failures: 5 }).execute();
    assert.deepEqual(await found(), []);
    await row.set({ failures: 6 }).execute();
    assert.equal((await found()).length, 1);
    await db.updateTable('snapshots').set({ state: 'error' }).where('id', '=', id).execute();
    assert.deepEqual(await found(), []);
  });
});

describe('saved memory in the object store', () => {
  it('goes on on a host with the same processor, and on no other', async () => {
    const { id } = await makeSnapshot('with memory', { memory: true });
    await settled(() => isPublished(id));
    await second().setProcessor('another');
    await onlyHosts(1);
    const refused = await api('POST', '/v1/machines', { body: { snapshot_id: id } });
    assert.deepEqual([refused.status, refused.json.code], [503, 'fleet_capacity'], refused.text);
    await onlyHosts(1, 2);
    const copy = await makeMachine({ snapshot_id: id });
    assert.equal(await hostOf(copy), hosts[2]?.id);
    assert.equal(hosts[2]?.agent.hypervisor.running.get(copy)?.isResumed, true);
  });
});

describe('an image in the object store', () => {
  const imageOf = (host: (typeof hosts)[number], machineId: string) =>
    JSON.parse(readFileSync(join(host.agent.paths.machines, machineId, 'machine.json'), 'utf8')).image;
  const isImagePublished = async (stack: string) => (await findImagePublication(db, stack)) !== undefined;
  const makeOn = async (index: number, stack: string) => {
    await onlyHosts(index);
    const id = await makeMachine({ stack });
    return readFileSync(imageOf(hosts[index] ?? assert.fail(), id).rootfsPath, 'utf8');
  };

  it('makes machines on hosts that do not have it, and its own host comes first', async () => {
    await first().addImage('tool', 'one');
    await settled(() => isImagePublished('tool'));
    assert.equal(await makeOn(1, 'tool'), 'rootfs of one');
    await onlyHosts(0, 1, 2);
    for (let count = 0; count < 4; count++) {
      assert.equal(await hostOf(await makeMachine({ stack: 'tool' })), first().id);
    }
    const { images } = (await api('GET', '/v1/images')).json;
    assert.equal(images.filter((image: { stack: string }) => image.stack === 'tool').length, 1);
  });

  it('is the newest one, and the older one is removed from the store when nothing needs it', async () => {
    await first().addImage('tool', 'two');
    const newest = async () => (await findImagePublication(db, 'tool'))?.manifest.digest;
    const before = await newest();
    await settled(async () => (await newest()) !== before);
    assert.equal(await makeOn(1, 'tool'), 'rootfs of two');
    assert.equal(await makeOn(0, 'tool'), 'rootfs of two');
    await db
      .updateTable('publications')
      .set({ published_at: new Date(0) })
      .where('stack', '=', 'tool')
      .execute();
    const count = async () =>
      (await db.selectFrom('publications').select('id').where('stack', '=', 'tool').execute()).length;
    await settled(async () => (await count()) === 1);
    assert.notEqual(await newest(), before);
  });

  it('is refused on other hosts while it is not in the store', async () => {
    await first().addImage('unpublished', 'x');
    await settled(() => isImagePublished('unpublished'));
    await db.updateTable('publications').set({ published_at: null }).where('stack', '=', 'unpublished').execute();
    await onlyHosts(1);
    const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, stack: 'unpublished' } });
    assert.deepEqual([answer.status, answer.json.code], [503, 'fleet_capacity'], answer.text);
  });
});
