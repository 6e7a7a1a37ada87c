// The types of the tables about the object store.
import type { ImageManifest, SnapshotManifest } from '@sandbar/contract/host-blobs.ts';
import type { ColumnType, Generated } from 'kysely';

/** One row: the id with which the names of all objects of this database begin. */
export type ObjectStoreTable = { id: string; is_only: Generated<boolean> };

/**
 * `removing`: its objects are being deleted. Nothing may refer to such a blob any more, and its id is never used again.
 */
export type BlobState = 'uploading' | 'published' | 'removing';

export type BlobTable = {
  id: string;
  /** Of the whole file. */
  sha256: string;
  bytes: number;
  state: Generated<BlobState>;
  /** When a publication began to refer to it. */
  used_at: Generated<Date>;
};

/** A part that is in the object store. Written after its object. */
export type BlobPartTable = {
  blob_id: string;
  index: number;
  /** The name of the object. */
  key: string;
  /** Of the stored, compressed bytes. */
  sha256: string;
  bytes: number;
};

/** How far a snapshot or an image has come on its way to the object store. */
export type PublicationTable = {
  /** That of the snapshot, if it is one. */
  id: string;
  snapshot_id: string | null;
  /** The image: its stack, digest and time as its host reports them, and that host. Null for a snapshot. */
  stack: string | null;
  digest: string | null;
  image_created_at: Date | null;
  host_id: string | null;
  /** When the next attempt is due, or when the claim of the present attempt ends. Null: there is nothing to do. */
  due_at: Generated<Date | null>;
  failures: Generated<number>;
  /** Why the last attempt failed; also set after a later one succeeded. */
  last_error: string | null;
  manifest: ColumnType<SnapshotManifest | ImageManifest | null, string | null, string | null>;
  /** The processor of the host, for a memory snapshot. */
  processor: string | null;
  /** Since when other hosts can fetch it. */
  published_at: Date | null;
};

/** A file of a publication. As long as the row exists, its blob is not removed. */
export type PublicationBlobTable = { publication_id: string; name: string; blob_id: string };
