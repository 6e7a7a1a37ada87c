// Brings a published snapshot to a host that does not have it, so that a machine can be made from it there. The host gets
// the addresses of the missing parts, checks their digests, and makes a copy of the snapshot of them.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { PART_LANES } from '@sandbar/contract/host-blobs.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { HostClient } from '../hosts/client.ts';
import type { ObjectStore } from './object-store.ts';
import { findPublication, listParts, listSnapshotBlobs, type SnapshotBlob } from './store.ts';

/** A host may remove an old file between its arrival and its use, so what is missing is asked for again. */
const ROUNDS = 3;

/**
 * Makes sure that a host has a snapshot, or does nothing when it is the snapshot's own host or there is no object store.
 * Throws `conflict` when the snapshot cannot be fetched, and the errors of the host.
 */
export async function bringSnapshot(app: App, hostId: string, snapshotId: string): Promise<void> {
  const { objects, db } = app;
  if (!objects) return;
  const snapshot = await db.selectFrom('snapshots').select('host_id').where('id', '=', snapshotId).executeTakeFirst();
  if (snapshot?.host_id === hostId) return;
  const publication = await findPublication(db, snapshotId);
  if (!snapshot || !publication) throw notThere();
  const client = app.hosts.client(hostId);
  const blobs = await listSnapshotBlobs(db, snapshotId);
  const files = blobs.map(({ name, sha256, bytes }) => ({ name, sha256, bytes }));
  for (let round = 1; round <= ROUNDS; round++) {
    const { missing } = await client.addCopy(snapshotId, { manifest: publication.manifest, files });
    if (missing.length === 0) return;
    const wanted = new Map(blobs.filter(({ sha256 }) => missing.includes(sha256)).map((blob) => [blob.sha256, blob]));
    for (const blob of wanted.values()) await bringBlob(app, objects, client, blob);
  }
  throw new ServiceError('host_unavailable', 'The host did not keep the files of the snapshot.', { retryAfterSec: 5 });
}

async function bringBlob(app: App, objects: ObjectStore, client: HostClient, blob: SnapshotBlob): Promise<void> {
  const { is_complete, parts: present } = await client.blobProgress(blob.sha256);
  if (is_complete) return;
  const parts = await listParts(app.db, blob.id);
  const missing = parts.filter(({ index }) => !present.includes(index));
  await forEachBounded(missing, PART_LANES, async ({ index, key, sha256, bytes }) => {
    app.closing.throwIfAborted();
    await client.downloadPart(blob.sha256, index, { url: await objects.signGet(key), sha256, bytes });
  });
  await client.assembleBlob(blob.sha256, { bytes: blob.bytes });
}

const notThere = (): ServiceError =>
  new ServiceError('conflict', 'The snapshot is on another host, and no other host can fetch it any more.');
