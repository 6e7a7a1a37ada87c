// Crashes a process between any two steps (SQL statements, host calls, requests to the object store) while it publishes
// a snapshot or removes blobs, drops the answer to a step, or lets others act meanwhile. Afterwards a snapshot that
// exists can be fetched, and the store has nothing that nobody needs.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { bringSnapshot } from '../src/blobs/bring.ts';
import { removeStrays, removeUnusedBlobs } from '../src/blobs/collect.ts';
import { createPublisher } from '../src/blobs/publisher.ts';
import { blobPrefix, insertPart, listBlobs, newPartKey, readKeyPrefix } from '../src/blobs/store.ts';
import { openStoreOf, startBlobBed, writeDisk } from './support/blob-bed.ts';
import { type Fate, runWithFate } from './support/dying.ts';

// The reconciler does nothing here by itself: the tests do its work.
const bed = await startBlobBed(2, {
  reconcileMs: 3_600_000,
  blobsMs: { every: 3_600_000, kept: 0, images: 3_600_000, strays: 3_600_000 },
});
const { api, hosts, store, makeMachine } = bed;
const { app } = bed.plane;
const { db } = app;
const objects = await openStoreOf(bed);
const FATES: Fate[] = ['dies', 'loses the answer', 'pauses'];
const DAY_MS = 24 * 3_600_000;

await hosts[1]?.setReachable(false);
const home = () => hosts[0] ?? assert.fail();
const other = () => hosts[1] ?? assert.fail();

const snap = async (machineId: string): Promise<string> => {
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`, { body: {} });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
/** Publishes everything that is due, in one pass. */
const publish = async (process: App): Promise<void> => {
  const publisher = createPublisher(process, process.objects ?? assert.fail());
  await publisher.pass();
  await publisher.settled();
};
const collect = (process: App): Promise<void> => removeUnusedBlobs(process, process.objects ?? assert.fail());
const isPublished = async (id: string): Promise<boolean> => {
  const row = await db.selectFrom('publications').selectAll().where('snapshot_id', '=', id).executeTakeFirst();
  return row?.published_at != null;
};
/** Publishes a snapshot as the reconciler does after pauses, while blobs are being removed. */
const publishAtLast = async (id: string): Promise<void> => {
  for (let round = 0; !(await isPublished(id)); round++) {
    assert.ok(round < 20, bed.logged().slice(-5_000));
    await db.updateTable('publications').set({ due_at: sql`now()` }).where('published_at', 'is', null).execute();
    await Promise.all([publish(app), collect(app)]);
  }
};
/** The store has exactly the objects that rows know, once everything old is removed. */
const checkStore = async (): Promise<void> => {
  await collect(app);
  await removeStrays(app, objects, Date.now() + 2 * DAY_MS);
  const parts = await db.selectFrom('blob_parts').select('key').execute();
  assert.deepEqual(store.keys(), parts.map(({ key }) => key).sort());
};
/** Another host gets the snapshot from nothing but the store. */
const checkFetched = async (id: string): Promise<void> => {
  await bringSnapshot(app, other().id, id);
  assert.ok(other().agent.snapshots.find(id), 'it is whole');
  other().agent.snapshots.removeCopy(id);
  other().agent.garbage.collect();
};

describe('a crash', () => {
  for (const fate of FATES) {
    it(`a publication that ${fate} at any step is finished by another process`, { timeout: 240_000 }, async () => {
      for (let at = 1, isReached = true; isReached; at++) {
        const machineId = await makeMachine();
        writeDisk(home(), machineId, `${fate} ${at}`);
        const id = await snap(machineId);
        isReached = await runWithFate(app, { fate, at }, publish);
        await publishAtLast(id);
        await checkFetched(id);
        assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 204);
        assert.equal((await api('DELETE', `/v1/machines/${machineId}`)).status, 200);
      }
      await checkStore();
    });

    it(`a removal that ${fate} at any step takes nothing from a snapshot that needs the same blob (CTL-15)`, {
      timeout: 240_000,
    }, async () => {
      for (let at = 1, isReached = true; isReached; at++) {
        const machineId = await makeMachine();
        writeDisk(home(), machineId, `${fate} ${at}`);
        const old = await snap(machineId);
        await publishAtLast(old);
        const id = await snap(machineId);
        assert.equal((await api('DELETE', `/v1/snapshots/${old}`)).status, 204);
        const removal = runWithFate(app, { fate, at }, collect);
        if (fate !== 'pauses') await removal;
        await publishAtLast(id);
        isReached = await removal;
        await checkFetched(id);
        await collect(app);
        await checkFetched(id);
        assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 204);
        assert.equal((await api('DELETE', `/v1/machines/${machineId}`)).status, 200);
      }
      await checkStore();
      // What is left is the image of the hosts.
      const { length } = await db.selectFrom('publication_blobs').select('name').execute();
      assert.equal(store.keys().length, length);
    });
  }
});

describe('objects that no row knows', () => {
  it('stay for a day, then they are removed; those of another database never', async () => {
    const machineId = await makeMachine();
    const id = await snap(machineId);
    await publishAtLast(id);
    const [blob] = await listBlobs(db, id);
    const keyPrefix = await readKeyPrefix(db);
    const stray = newPartKey(keyPrefix, blob?.id ?? assert.fail(), 7);
    const foreign = newPartKey(`${id}/`, id, 0);
    for (const key of [stray, foreign]) {
      assert.equal((await fetch(await objects.signPut(key), { method: 'PUT', body: 'x' })).status, 200);
    }
    await removeStrays(app, objects, Date.now());
    assert.ok(store.keys().includes(stray));
    await removeStrays(app, objects, Date.now() + 2 * DAY_MS);
    assert.ok(!store.keys().includes(stray));
    assert.ok(store.keys().includes(foreign));
    await objects.remove([foreign]);
    await checkFetched(id);
  });

  it('cannot be recorded any more when they are old enough to be removed', async () => {
    const [blob] = await db.selectFrom('blobs').selectAll().limit(1).execute();
    const blobId = blob?.id ?? assert.fail();
    await db.updateTable('blobs').set({ state: 'uploading' }).where('id', '=', blobId).execute();
    const key = `${blobPrefix('x/', blobId)}late`;
    const part = { blobId, index: 99, key, stored: { sha256: '0'.repeat(64), bytes: 1 } };
    assert.equal(await insertPart(db, { ...part, begunAt: new Date(Date.now() - 2 * 3_600_000) }), false);
    assert.equal(await insertPart(db, { ...part, begunAt: new Date() }), true);
    assert.equal(await insertPart(db, { ...part, key: `${key}r`, begunAt: new Date() }), false);
  });
});
