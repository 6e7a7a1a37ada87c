// The SQL of blobs, and the rules that keep a removal from a blob that is in use:
//
//   - A publication refers to a blob in a transaction that locks the blob's row and refuses one that is being removed.
//   - A removal begins in a transaction that locks the row too and then looks for references. From its commit on, no
//     new reference is possible. Only then the objects are deleted, and the row last.
//   - The names of a blob's objects begin with the id of its row. The same content gets a row with another id when it
//     is published again, so a removal that goes on late never meets the new objects.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  type BlobFile,
  type ImageManifest,
  partCount,
  type SnapshotManifest,
  type StoredPart,
} from '@sandbar/contract/host-blobs.ts';
import { type Selectable, sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { BlobPartTable, BlobTable } from '../db/blob-tables.ts';
import type { Db, Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';

export type BlobRow = Selectable<BlobTable>;
export type BlobPartRow = Selectable<BlobPartTable>;
/** A file of a publication with its blob. */
export type PublicationBlob = BlobRow & { name: BlobFile['name'] };

/** An object is recorded only within this time after its upload began. The search for strays waits far longer. */
const RECORDED_WITHIN = sql`interval '1 hour'`;

/** Returns the part with which the names of all objects of this database begin. */
export async function readKeyPrefix(db: Db): Promise<string> {
  const { id } = await db.selectFrom('object_stores').select('id').executeTakeFirstOrThrow();
  return `${id}/`;
}

/** Returns the part with which the names of all objects of a blob begin. */
export const blobPrefix = (keyPrefix: string, blobId: string): string => `${keyPrefix}${blobId}/`;

/** Returns a name for a part that no object has. Two attempts at the same part never write the same object. */
export const newPartKey = (keyPrefix: string, blobId: string, index: number): string =>
  `${blobPrefix(keyPrefix, blobId)}${index}-${randomUUID()}`;

/**
 * Makes a publication refer to the blobs of its files, and inserts the blobs that do not exist. Throws `conflict` when
 * one of them is being removed, and `not_found` when the publication is gone. Both leave everything unchanged.
 */
export function referToBlobs(db: Db, publicationId: string, files: readonly BlobFile[]): Promise<void> {
  return inTransaction(db, async (tx) => {
    const publication = await tx
      .selectFrom('publications')
      .select('id')
      .where('id', '=', publicationId)
      .forUpdate()
      .executeTakeFirst();
    if (!publication) throw new ServiceError('not_found', 'The snapshot was deleted, or the image was replaced.');
    for (const { name, sha256, bytes } of files.toSorted((a, b) => (a.sha256 < b.sha256 ? -1 : 1))) {
      const blob_id = await useBlob(tx, sha256, bytes);
      await tx
        .insertInto('publication_blobs')
        .values({ publication_id: publicationId, name, blob_id })
        .onConflict((conflict) => conflict.columns(['publication_id', 'name']).doNothing())
        .execute();
    }
  });
}

/**
 * Inserts the blob if there is none, locks its row, and returns its id. Throws `conflict` for one that is being
 * removed.
 */
async function useBlob(tx: Tx, sha256: string, bytes: number): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    insert into blobs (id, sha256, bytes) values (${uuidv7()}, ${sha256}, ${bytes})
    on conflict (sha256) do update set used_at = now() where blobs.state <> 'removing'
    returning id`.execute(tx);
  if (rows[0]) return rows[0].id;
  throw new ServiceError('conflict', `The blob ${sha256} is being removed. Retry later.`);
}

/** Returns the files of a publication with their blobs. */
export async function listBlobs(db: Db, publicationId: string): Promise<PublicationBlob[]> {
  const rows = await db
    .selectFrom('publication_blobs')
    .innerJoin('blobs', 'blobs.id', 'publication_blobs.blob_id')
    .selectAll('blobs')
    .select('publication_blobs.name')
    .where('publication_id', '=', publicationId)
    .orderBy('name')
    .execute();
  return rows as PublicationBlob[];
}

/** Returns the parts of a blob that are in the store, by their index. */
export function listParts(db: Db, blobId: string): Promise<BlobPartRow[]> {
  return db.selectFrom('blob_parts').selectAll().where('blob_id', '=', blobId).orderBy('index').execute();
}

/** Returns the database's time, to be passed to {@link insertPart}. */
export async function readTime(db: Db): Promise<Date> {
  const { rows } = await sql<{ now: Date }>`select clock_timestamp() as now`.execute(db);
  return rows[0]?.now ?? new Date(0);
}

export type NewPart = { blobId: string; index: number; key: string; stored: StoredPart; begunAt: Date };

/**
 * Records a part whose object is in the store. Returns false and records nothing when another attempt has recorded the
 * part, when the blob is no longer being uploaded, or when the upload began too long ago.
 */
export async function insertPart(db: Db, { blobId, index, key, stored, begunAt }: NewPart): Promise<boolean> {
  return inTransaction(db, async (tx) => {
    const blob = await tx
      .selectFrom('blobs')
      .select('id')
      .where('id', '=', blobId)
      .where('state', '=', 'uploading')
      .where(sql<boolean>`${begunAt}::timestamptz > clock_timestamp() - ${RECORDED_WITHIN}`)
      .forUpdate()
      .executeTakeFirst();
    if (!blob) return false;
    const { numInsertedOrUpdatedRows } = await tx
      .insertInto('blob_parts')
      .values({ blob_id: blobId, index, key, ...stored })
      .onConflict((conflict) => conflict.columns(['blob_id', 'index']).doNothing())
      .executeTakeFirst();
    return Number(numInsertedOrUpdatedRows ?? 0) === 1;
  });
}

/** Marks a blob as published when all its parts are in the store. */
export async function publishBlob(db: Db, { id, bytes }: Pick<BlobRow, 'id' | 'bytes'>): Promise<void> {
  await sql`
    update blobs set state = 'published' where id = ${id} and state = 'uploading'
      and (select count(*) from blob_parts where blob_id = ${id}) = ${partCount(bytes)}`.execute(db);
}

/**
 * Marks a publication as complete when all its blobs are. Returns whether it is now. `processor`: that of its host, for
 * a memory snapshot.
 */
export async function publishRow(
  db: Db,
  id: string,
  { manifest, processor }: { manifest: SnapshotManifest | ImageManifest; processor: string | null },
): Promise<boolean> {
  const { rows } = await sql`
    update publications set published_at = now(), due_at = null, manifest = ${JSON.stringify(manifest)}::jsonb,
      processor = ${processor}
    where id = ${id} and exists (select from publication_blobs where publication_id = ${id})
      and not exists (
        select from publication_blobs join blobs on blobs.id = blob_id
        where publication_id = ${id} and state <> 'published')
    returning id`.execute(db);
  return rows.length > 0;
}

export type Published = { manifest: SnapshotManifest; processor: string | null };

/** Returns how a snapshot was published, or undefined when other hosts cannot fetch it. */
export async function findPublication(db: Db | Tx, snapshotId: string): Promise<Published | undefined> {
  const row = await db
    .selectFrom('publications')
    .select(['manifest', 'processor'])
    .where('snapshot_id', '=', snapshotId)
    .where('published_at', 'is not', null)
    .executeTakeFirst();
  // The publication of a snapshot has the manifest of a snapshot.
  return row?.manifest ? { manifest: row.manifest as SnapshotManifest, processor: row.processor } : undefined;
}

/** Returns the newest image of a stack in the store, or undefined when there is none. */
export async function findImagePublication(
  db: Db | Tx,
  stack: string,
): Promise<{ id: string; manifest: ImageManifest } | undefined> {
  const row = await db
    .selectFrom('publications')
    .select(['id', 'manifest'])
    .where('stack', '=', stack)
    .where('published_at', 'is not', null)
    .orderBy('image_created_at', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row?.manifest ? { id: row.id, manifest: row.manifest as ImageManifest } : undefined;
}
