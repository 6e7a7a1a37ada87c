// The types of the tables about the object store.
import type { SnapshotManifest } from '@sandbar/contract/host-blobs.ts';
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
  /** When a snapshot began to refer to it. */
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

/** How far a snapshot has come on its way to the object store. */
export type PublicationTable = {
  snapshot_id: string;
  /** When the next attempt is due, or when the claim of the present attempt ends. Null: there is nothing to do. */
  due_at: Generated<Date | null>;
  failures: Generated<number>;
  manifest: ColumnType<SnapshotManifest | null, string | null, string | null>;
  /** The processor of the host, for a memory snapshot. */
  processor: string | null;
  /** Since when other hosts can fetch it. */
  published_at: Date | null;
};

/** A snapshot's file. As long as the row exists, its blob is not removed. */
export type SnapshotBlobTable = { snapshot_id: string; name: string; blob_id: string };
