// Brings the files of a snapshot or an image into the object store: first the objects, then the rows of the parts, then
// those of the blobs, and the publication last. Everything may be repeated, also by two processes at once. An attempt
// that was cut off goes on with the parts that are missing.
import {
  type BlobFile,
  type ImageManifest,
  PART_LANES,
  partCount,
  type SnapshotManifest,
  type StoredPart,
  type UploadPart,
} from '@sandbar/contract/host-blobs.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { ObjectStore } from './object-store.ts';
import {
  insertPart,
  listBlobs,
  listParts,
  newPartKey,
  type PublicationBlob,
  publishBlob,
  publishRow,
  readKeyPrefix,
  readTime,
  referToBlobs,
} from './store.ts';

/** What is to be published, and the host that has it. For a snapshot, `id` is that of the snapshot. */
export type DuePublication = { id: string; host_id: string } & (
  | { stack: null; digest: null }
  | { stack: string; digest: string }
);
/** The source will never be published, so there is no further attempt. */
export class NotPublishable extends Error {}

type Source = {
  content(): Promise<{ manifest: SnapshotManifest | ImageManifest; files: BlobFile[] }>;
  upload(part: UploadPart): Promise<StoredPart>;
};
type Upload = { objects: ObjectStore; source: Source; keyPrefix: string };

/**
 * Publishes a snapshot or an image of its host. Calls `onProgress` after every part. Throws `NotPublishable`. Throws
 * when the host or the store fails, when the publication is gone, or when a blob is being removed; a later attempt goes
 * on from there.
 */
export async function publish(
  app: App,
  objects: ObjectStore,
  publication: DuePublication,
  onProgress: () => Promise<void> = async () => undefined,
): Promise<void> {
  const { id, host_id } = publication;
  const source = sourceOf(app, publication);
  const { manifest, files } = await source.content();
  await referToBlobs(app.db, id, files);
  const upload = { objects, source, keyPrefix: await readKeyPrefix(app.db) };
  for (const blob of await listBlobs(app.db, id)) {
    if (blob.state === 'uploading') await uploadBlob(app, upload, blob, onProgress);
  }
  const processor = 'memory' in manifest ? await readProcessor(app, host_id) : null;
  if (!(await publishRow(app.db, id, { manifest, processor }))) throw new Error('A blob is not complete.');
  app.log.info({ publication_id: id, stack: publication.stack, files: files.length }, 'published to the object store');
}

function sourceOf(app: App, { id, host_id, stack, digest }: DuePublication): Source {
  const client = app.hosts.client(host_id);
  if (stack === null) {
    const content = async () => {
      const found = await client.snapshotContent(id);
      const { memory } = found.manifest;
      if (found.manifest.kind === 'memory' && !memory) {
        throw new NotPublishable('The agent that took the memory snapshot did not record what it needs of a host.');
      }
      return found;
    };
    return { content, upload: (part) => client.uploadPart(id, part) };
  }
  const content = async () => {
    const found = await client.imageContent(stack);
    // The host has another build by now, which has a publication of its own.
    if (found.manifest.digest !== digest) throw new NotPublishable(`The host has another image "${stack}" by now.`);
    return found;
  };
  return { content, upload: (part) => client.uploadImagePart(stack, part) };
}

async function uploadBlob(
  app: App,
  upload: Upload,
  blob: PublicationBlob,
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
  { objects, source, keyPrefix }: Upload,
  { id: blobId, name }: PublicationBlob,
  index: number,
): Promise<void> {
  const begunAt = await readTime(app.db);
  const key = newPartKey(keyPrefix, blobId, index);
  const stored = await source.upload({ name, index, url: await objects.signPut(key) });
  if (await insertPart(app.db, { blobId, index, key, stored, begunAt })) return;
  // Only this attempt knows the object. If its removal fails, the search for strays finds it.
  await objects.remove([key]);
}

async function readProcessor({ db }: App, hostId: string): Promise<string | null> {
  const row = await db.selectFrom('hosts').select('processor').where('id', '=', hostId).executeTakeFirst();
  return row?.processor ?? null;
}
