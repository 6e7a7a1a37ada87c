// The S3-compatible store in which parts of blobs are objects. Only the control plane has its credentials. Hosts get
// addresses that are signed for one object and some minutes, so a host that is taken over can neither read nor remove
// what it was not given. The AWS SDK is loaded only when a store is configured.
import type { ObjectStoreConfig } from './config.ts';

/** How long a signed address can be used, in seconds. */
export const SIGNED_FOR_SEC = 900;
/** Most objects that S3 removes with one request. */
const REMOVED_AT_ONCE = 1000;

export type StoredObject = { key: string; changedAt: Date };

export type ObjectStore = {
  /** Returns an address at which one object can be put. */
  signPut(key: string): Promise<string>;
  /** Returns an address at which one object can be read, also in ranges. */
  signGet(key: string): Promise<string>;
  /** Yields all objects whose names begin with `prefix`, page by page. */
  list(prefix: string): AsyncIterable<StoredObject[]>;
  /** Removes objects. Objects that do not exist are no error. */
  remove(keys: readonly string[]): Promise<void>;
  close(): void;
};

/** Opens the store. Does not connect to it. */
export async function openObjectStore(config: ObjectStoreConfig): Promise<ObjectStore> {
  const [
    { S3Client, GetObjectCommand, PutObjectCommand, DeleteObjectsCommand, paginateListObjectsV2 },
    { getSignedUrl },
  ] = await Promise.all([import('@aws-sdk/client-s3'), import('@aws-sdk/s3-request-presigner')]);
  const { endpoint, region, bucket: Bucket, accessKeyId, secretAccessKey } = config;
  const client = new S3Client({
    endpoint,
    region,
    credentials: { accessKeyId, secretAccessKey },
    // Not every store has host names for its buckets.
    forcePathStyle: true,
    // Every part has a digest of ours. A checksum of the SDK would be part of the signature, for a body that only the
    // host knows.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  });
  const expires = { expiresIn: SIGNED_FOR_SEC };
  return {
    signPut: (Key) => getSignedUrl(client, new PutObjectCommand({ Bucket, Key }), expires),
    signGet: (Key) => getSignedUrl(client, new GetObjectCommand({ Bucket, Key }), expires),
    list: async function* (Prefix) {
      for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) {
        yield Contents.flatMap(({ Key, LastModified }) =>
          Key === undefined || LastModified === undefined ? [] : [{ key: Key, changedAt: LastModified }],
        );
      }
    },
    remove: async (keys) => {
      for (let from = 0; from < keys.length; from += REMOVED_AT_ONCE) {
        const Objects = keys.slice(from, from + REMOVED_AT_ONCE).map((Key) => ({ Key }));
        const { Errors = [] } = await client.send(
          new DeleteObjectsCommand({ Bucket, Delete: { Objects, Quiet: true } }),
        );
        const [error] = Errors.filter(({ Code }) => Code !== 'NoSuchKey');
        if (error) throw new Error(`The object store did not remove an object: ${error.Code} ${error.Message}`);
      }
    },
    close: () => client.destroy(),
  };
}
