// Reads the settings of the object store. If none is set, there is no object store.

import { ConfigError } from '../config-error.ts';
import { allOrNone, type Env, readUrl } from '../environment.ts';

export type ObjectStoreConfig = {
  /** Also the address at which the hosts reach the store. */
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
};

const REQUIRED = [
  'SANDBAR_S3_ENDPOINT',
  'SANDBAR_S3_BUCKET',
  'SANDBAR_S3_ACCESS_KEY_ID',
  'SANDBAR_S3_SECRET_ACCESS_KEY',
] as const;

/** Returns undefined when nothing is set. Throws `ConfigError`, which never quotes a secret. */
export function readObjectStoreConfig(env: Env): ObjectStoreConfig | undefined {
  const [endpoint, bucket, accessKeyId, secretAccessKey] = allOrNone(env, REQUIRED);
  if (!endpoint || !bucket || !accessKeyId || !secretAccessKey) return undefined;
  const url = readUrl(env, 'SANDBAR_S3_ENDPOINT', ['http:', 'https:']);
  if (url.username || url.password || url.search) {
    throw new ConfigError('SANDBAR_S3_ENDPOINT must have no credentials and no query in it.');
  }
  const region = env.SANDBAR_S3_REGION || 'us-east-1';
  return { endpoint, bucket, region, accessKeyId, secretAccessKey };
}
