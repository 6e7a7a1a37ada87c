// The calls with which the control plane moves files between a host and the object store. A file is a blob, named by the
// SHA-256 of its content, and is stored as parts: pieces of the file, each compressed and an object of its own. One call
// moves one part, so each call is short, and a transfer that was cut goes on with the parts that are missing. A host gets
// addresses that are signed for one object and some minutes, and never a credential of the store.
import { type Static, Type } from 'typebox';
import { OneOf, Timestamp, Uuid } from './fields.ts';
import { LAYER_NAME_PATTERN, SHA256_PATTERN, WEB_ADDRESS_PATTERN } from './patterns.ts';
import { SNAPSHOT_KINDS } from './snapshot.ts';

/** Size of a part before it is compressed, in bytes. The last part of a blob may be shorter. */
export const PART_BYTES = 16 * 1024 * 1024;
/** Most bytes of a stored part: data that cannot be compressed becomes slightly larger. */
export const STORED_PART_BYTES_MAX = PART_BYTES + 64 * 1024;
/** How many parts of one blob are moved at once. */
export const PART_LANES = 3;

export const Sha256 = (description: string) => Type.String({ pattern: SHA256_PATTERN, description });

/** Returns the number of parts of a blob of `bytes` bytes. */
export const partCount = (bytes: number): number => Math.ceil(bytes / PART_BYTES);

/** The name of a layer's file. The names of the other files are listed below. */
export const layerFileName = (layerId: string): string => `layer/${layerId}`;
export const IMAGE_FILES = ['kernel', 'initramfs', 'rootfs'] as const;
export type ImageFile = (typeof IMAGE_FILES)[number];
export const MEMORY_FILES = ['memory', 'state'] as const;
export type MemoryFile = (typeof MEMORY_FILES)[number];

/** A file of a snapshot. */
export const BlobFile = Type.Object(
  {
    name: Type.Union([OneOf([...IMAGE_FILES, ...MEMORY_FILES]), Type.String({ pattern: LAYER_NAME_PATTERN })]),
    sha256: Sha256('Of the whole file.'),
    bytes: Type.Integer({ minimum: 0 }),
  },
  { additionalProperties: false },
);
export type BlobFile = Static<typeof BlobFile>;

/** What a host needs besides the files to make machines from a snapshot of another host. */
export const SnapshotManifest = Type.Object(
  {
    machine_id: Uuid(),
    kind: OneOf(SNAPSHOT_KINDS),
    size_gb: Type.Integer({ minimum: 1 }),
    stack: Type.String(),
    layers: Type.Array(Uuid(), { description: 'The layers above the image, bottom first.' }),
    vcpus: Type.Integer({ minimum: 1 }),
    memory_mb: Type.Integer({ minimum: 1 }),
    stored_bytes: Type.Integer({ minimum: 0 }),
    exec: Type.Optional(Type.Unknown({ description: 'The defaults for jobs that the image sets.' })),
    memory: Type.Optional(
      Type.Object(
        {
          needs: Type.Object(
            {
              qemu: Type.String(),
              program: Type.String(),
              hardware: Type.Array(Type.String()),
              tscKhz: Type.Number(),
              processor: Type.Array(Type.String()),
            },
            { additionalProperties: false },
          ),
          checks: Type.Object(
            {
              bytes: Type.Integer({ minimum: 1 }),
              memory_sum: Type.String(),
              state_sha256: Type.String({ pattern: SHA256_PATTERN }),
            },
            { additionalProperties: false },
          ),
        },
        { additionalProperties: false },
      ),
    ),
  },
  { additionalProperties: false },
);
export type SnapshotManifest = Static<typeof SnapshotManifest>;

export const SnapshotContent = Type.Object(
  { manifest: SnapshotManifest, files: Type.Array(BlobFile) },
  { additionalProperties: false },
);
export type SnapshotContent = Static<typeof SnapshotContent>;

/** An image of a host, without its files. */
export const ImageManifest = Type.Object(
  {
    digest: Type.String({ description: 'As in the list of images.' }),
    created_at: Timestamp('As in the list of images.'),
    exec: SnapshotManifest.properties.exec,
  },
  { additionalProperties: false },
);
export type ImageManifest = Static<typeof ImageManifest>;

export const ImageContent = Type.Object(
  { manifest: ImageManifest, files: Type.Array(BlobFile) },
  { additionalProperties: false },
);
export type ImageContent = Static<typeof ImageContent>;

const SignedUrl = Type.String({
  pattern: WEB_ADDRESS_PATTERN,
  maxLength: 4096,
  description: 'Signed for this one request.',
});

/** Compresses one part of a file of a snapshot or image and puts it at `url`. */
export const UploadPart = Type.Object(
  { name: BlobFile.properties.name, index: Type.Integer({ minimum: 0 }), url: SignedUrl },
  { additionalProperties: false },
);
export type UploadPart = Static<typeof UploadPart>;

/** A part as it is stored. */
export const StoredPart = Type.Object(
  {
    sha256: Sha256('Of the stored, compressed bytes.'),
    bytes: Type.Integer({ minimum: 1, maximum: STORED_PART_BYTES_MAX }),
  },
  { additionalProperties: false },
);
export type StoredPart = Static<typeof StoredPart>;

/** Fetches one part of a blob. Does nothing if the host has it. Goes on where an earlier call was cut. */
export const DownloadPart = Type.Object({ ...StoredPart.properties, url: SignedUrl }, { additionalProperties: false });
export type DownloadPart = Static<typeof DownloadPart>;

/** Puts the parts of a blob together and checks the digest of the whole. Does nothing if the host has the blob. */
export const AssembleBlob = Type.Object({ bytes: Type.Integer({ minimum: 0 }) }, { additionalProperties: false });
export type AssembleBlob = Static<typeof AssembleBlob>;

export const BlobProgress = Type.Object({
  is_complete: Type.Boolean(),
  parts: Type.Array(Type.Integer(), { description: 'The parts that the host has.' }),
});
export type BlobProgress = Static<typeof BlobProgress>;

/** `missing`: digests of the blobs that the host needs first. Empty: the copy is complete. */
export const CopyProgress = Type.Object({ missing: Type.Array(Sha256('Of a blob.')) });
export type CopyProgress = Static<typeof CopyProgress>;

/** Copies of snapshots of other hosts. A host forgets one that was not used for a day, or when its disk is short. */
export const HostCopyList = Type.Object({ snapshot_ids: Type.Array(Uuid()) });
export type HostCopyList = Static<typeof HostCopyList>;

export const StackParams = Type.Object({ stack: Type.String({ maxLength: 64 }) });
export const BlobParams = Type.Object({ sha256: Sha256('Of the blob.') });
export const BlobPartParams = Type.Object({ sha256: Sha256('Of the blob.'), index: Type.Integer({ minimum: 0 }) });

export const BLOB_PATHS = {
  snapshotContent: '/v1/snapshots/:id/content',
  snapshotPart: '/v1/snapshots/:id/content/parts',
  imageContent: '/v1/images/:stack/content',
  imagePart: '/v1/images/:stack/content/parts',
  imageCopy: '/v1/image-copies/:stack',
  blob: '/v1/blobs/:sha256',
  blobPart: '/v1/blobs/:sha256/parts/:index',
  snapshotCopy: '/v1/snapshot-copies/:id',
  snapshotCopies: '/v1/snapshot-copies',
} as const;
