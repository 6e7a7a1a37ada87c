// Brings the files of a snapshot into the object store: first the objects, then the rows of the parts, then those of the
// blobs, and the publication last. Everything may be repeated, also by two processes at once. An attempt that was cut
// off goes on with the parts that are missing.
import type { BlobFile } from '@sandbar/contract/host-blobs.ts';
import { PART_LANES, partCount } from '@sandbar/contract/host-blobs.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { SnapshotRow } from '../db/tables.ts';
import type { HostClient } from '../hosts/client.ts';
import type { ObjectStore } from './object-store.ts';
import {
  insertPart,
  listParts,
  listSnapshotBlobs,
  newPartKey,
  publishBlob,
  publishRow,
  readKeyPrefix,
  readTime,
  referToBlobs,
  type SnapshotBlob,
} from './store.ts';

export type PublishedSnapshot = Pick<SnapshotRow, 'id' | 'host_id' | 'kind'>;
type Upload = { objects: ObjectStore; client: HostClient; keyPrefix: string; snapshotId: string };

/**
 * Publishes a snapshot of its host. Calls `onProgress` after every part. Throws when the host or the store fails, when
 * the snapshot was deleted, or when a blob is being removed; a later attempt goes on from there.
 */
export async function publishSnapshot(
  app: App,
  objects: ObjectStore,
  { id, host_id, kind }: PublishedSnapshot,
  onProgress: () => Promise<void> = async () => undefined,
): Promise<void> {
  const client = app.hosts.client(host_id);
  const { manifest, files } = await client.snapshotContent(id);
  await referToBlobs(app.db, id, files);
  const upload = { objects, client, keyPrefix: await readKeyPrefix(app.db), snapshotId: id };
  for (const blob of await listSnapshotBlobs(app.db, id)) {
    if (blob.state === 'uploading') await uploadBlob(app, upload, blob, onProgress);
  }
  const processor = kind === 'memory' ? await readProcessor(app, host_id) : null;
  if (!(await publishRow(app.db, id, { manifest, processor })))
    throw new Error('A blob of the snapshot is not complete.');
  app.log.info({ snapshot_id: id, files: files.length }, 'a snapshot was published');
}

async function uploadBlob(
  app: App,
  upload: Upload,
  blob: SnapshotBlob,
  onProgress: () => Promise<void>,
): Promise<void> {
  const present = new Set((await listParts(app.db, blob.id)).map(({ index }) => index));
  const missing = Array.from({ length: partCount(blob.bytes) }, (_, index) => index).filter((one) => !present.has(one));
  await forEachBounded(missing, PART_LANES, async (index) => {
    app.closing.throwIfAborted();
    await uploadPart(app, upload, blob, index);
    await onProgress();
  });
  await publishBlob(app.db, blob);
}

async function uploadPart(
  app: App,
  { objects, client, keyPrefix, snapshotId }: Upload,
  { id: blobId, name }: { id: string; name: BlobFile['name'] },
  index: number,
): Promise<void> {
  const begunAt = await readTime(app.db);
  const key = newPartKey(keyPrefix, blobId, index);
  const url = await objects.signPut(key);
  const stored = await client.uploadPart(snapshotId, { name, index, url });
  if (await insertPart(app.db, { blobId, index, key, stored, begunAt })) return;
  // Only this attempt knows the object. If its removal fails, the search for strays finds it.
  await objects.remove([key]);
}

async function readProcessor({ db }: App, hostId: string): Promise<string | null> {
  const row = await db.selectFrom('hosts').select('processor').where('id', '=', hostId).executeTakeFirst();
  return row?.processor ?? null;
}
