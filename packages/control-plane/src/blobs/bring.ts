// Brings a published snapshot or image to a host that does not have it, so that a machine can be made from it there.
// The host gets the addresses of the missing parts, checks their digests, and makes a copy of them.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type BlobFile, type CopyProgress, PART_LANES } from '@sandbar/contract/host-blobs.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { MachineRow } from '../db/tables.ts';
import type { HostClient } from '../hosts/client.ts';
import type { ObjectStore } from './object-store.ts';
import { findImagePublication, findPublication, listBlobs, listParts, type PublicationBlob } from './store.ts';

/** A host may remove an old file between its arrival and its use, so what is missing is asked for again. */
const ROUNDS = 3;

/**
 * Makes sure that the host of a new machine has what the machine is made from. Throws `conflict` when that is a
 * snapshot that was deleted, and the errors of the host.
 */
export async function bringSource(
  app: App,
  { host_id, snapshot_id, root_volume_id, stack }: MachineRow,
): Promise<void> {
  if (snapshot_id !== null) await bringSnapshot(app, host_id, snapshot_id);
  else if (root_volume_id === null) await bringImage(app, host_id, stack);
}

/**
 * Makes sure that a host has a snapshot, or does nothing when it is the snapshot's own host or the snapshot is not in an
 * object store. Throws `conflict` when the snapshot was deleted, and the errors of the host.
 */
export async function bringSnapshot(app: App, hostId: string, snapshotId: string): Promise<void> {
  const { objects, db } = app;
  if (!objects) return;
  const snapshot = await db.selectFrom('snapshots').select('host_id').where('id', '=', snapshotId).executeTakeFirst();
  if (snapshot?.host_id === hostId) return;
  if (!snapshot) throw notThere();
  const publication = await findPublication(db, snapshotId);
  // Without one, the host says whether it has the snapshot: after a move it keeps it for the creates that need it.
  if (!publication) return;
  const { manifest } = publication;
  const client = app.hosts.client(hostId);
  await bringFiles(app, objects, client, snapshotId, (files) => client.addCopy(snapshotId, { manifest, files }));
}

/**
 * Makes sure that a host has an image of a stack. A host without one gets the newest from the object store. Throws the
 * errors of the host.
 */
async function bringImage(app: App, hostId: string, stack: string): Promise<void> {
  const { objects, db, hostTable } = app;
  if (!objects) return;
  const host = hostTable.hosts.find(({ id }) => id === hostId);
  if (host?.images.some((image) => image.stack === stack)) return;
  const publication = await findImagePublication(db, stack);
  // Without one, the host itself says that it has no such image.
  if (!publication) return;
  const { id, manifest } = publication;
  const client = app.hosts.client(hostId);
  await bringFiles(app, objects, client, id, (files) => client.addImageCopy(stack, { manifest, files }));
}

async function bringFiles(
  app: App,
  objects: ObjectStore,
  client: HostClient,
  publicationId: string,
  addCopy: (files: BlobFile[]) => Promise<CopyProgress>,
): Promise<void> {
  const blobs = await listBlobs(app.db, publicationId);
  const files = blobs.map(({ name, sha256, bytes }) => ({ name, sha256, bytes }));
  for (let round = 1; round <= ROUNDS; round++) {
    const { missing } = await addCopy(files);
    if (missing.length === 0) return;
    const wanted = new Map(blobs.filter(({ sha256 }) => missing.includes(sha256)).map((blob) => [blob.sha256, blob]));
    for (const blob of wanted.values()) await bringBlob(app, objects, client, blob);
  }
  throw new ServiceError('host_unavailable', 'The host did not keep the files that it fetched.', { retryAfterSec: 5 });
}

async function bringBlob(app: App, objects: ObjectStore, client: HostClient, blob: PublicationBlob): Promise<void> {
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
  new ServiceError('conflict', 'The snapshot was deleted while the machine was being made from it.');
