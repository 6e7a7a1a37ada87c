// The routes of the host API that move files between this host and the object store.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HostSnapshotParams } from '@sandbar/contract/host-api.ts';
import {
  AssembleBlob,
  BLOB_PATHS,
  BlobParams,
  BlobPartParams,
  BlobProgress,
  CopyProgress,
  DownloadPart,
  HostCopyList,
  ImageContent,
  SnapshotContent,
  StackParams,
  StoredPart,
  UploadPart,
} from '@sandbar/contract/host-blobs.ts';
import type { FastifyInstance } from 'fastify';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { ImageTransfer } from '../blobs/image-transfer.ts';
import type { SnapshotTransfer } from '../blobs/snapshot-transfer.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { Garbage } from '../storage/garbage.ts';

export type BlobServices = {
  blobs: BlobStore;
  transfer: SnapshotTransfer;
  images: ImageTransfer;
  snapshots: SnapshotStore;
  garbage: Garbage;
};

export function addBlobRoutes(
  untyped: FastifyInstance,
  { blobs, transfer, images, snapshots, garbage }: BlobServices,
): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.get(
    BLOB_PATHS.snapshotContent,
    { schema: { params: HostSnapshotParams, response: { 200: SnapshotContent } } },
    (request) => transfer.contentOf(request.params.id),
  );

  server.post(
    BLOB_PATHS.snapshotPart,
    { schema: { params: HostSnapshotParams, body: UploadPart, response: { 200: StoredPart } } },
    (request) => transfer.upload(request.params.id, request.body),
  );

  server.get(BLOB_PATHS.blob, { schema: { params: BlobParams, response: { 200: BlobProgress } } }, (request) =>
    blobs.progress(request.params.sha256),
  );

  server.put(
    BLOB_PATHS.blobPart,
    { schema: { params: BlobPartParams, body: DownloadPart } },
    async (request, reply) => {
      await blobs.fetchPart(request.params.sha256, request.params.index, request.body);
      return reply.status(204).send();
    },
  );

  server.put(BLOB_PATHS.blob, { schema: { params: BlobParams, body: AssembleBlob } }, async (request, reply) => {
    await blobs.assemble(request.params.sha256, request.body.bytes);
    return reply.status(204).send();
  });

  server.get(BLOB_PATHS.snapshotCopies, { schema: { response: { 200: HostCopyList } } }, () => ({
    snapshot_ids: snapshots.copyIds(),
  }));

  server.put(
    BLOB_PATHS.snapshotCopy,
    { schema: { params: HostSnapshotParams, body: SnapshotContent, response: { 200: CopyProgress } } },
    (request) => transfer.addCopy(request.params.id, request.body),
  );

  server.delete(BLOB_PATHS.snapshotCopy, { schema: { params: HostSnapshotParams } }, async (request, reply) => {
    snapshots.removeCopy(request.params.id);
    garbage.collectSoon();
    return reply.status(204).send();
  });

  server.get(BLOB_PATHS.imageContent, { schema: { params: StackParams, response: { 200: ImageContent } } }, (request) =>
    images.contentOf(request.params.stack),
  );

  server.post(
    BLOB_PATHS.imagePart,
    { schema: { params: StackParams, body: UploadPart, response: { 200: StoredPart } } },
    (request) => images.upload(request.params.stack, request.body),
  );

  server.put(
    BLOB_PATHS.imageCopy,
    { schema: { params: StackParams, body: ImageContent, response: { 200: CopyProgress } } },
    (request) => images.addCopy(request.params.stack, request.body),
  );
}
