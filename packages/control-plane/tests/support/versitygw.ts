// versitygw, an S3 server for one folder. It stands for the object store of an operator.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { defaultCache } from '@sandbar/contract/home.ts';
import { goEnvironment } from '../../../host-agent/src/images/agent.ts';
import { cacheKey, ensureArtifact } from '../../../host-agent/src/images/cache.ts';
import type { ObjectStoreConfig } from '../../src/blobs/config.ts';
import { freePort } from './free-ports.ts';
import { until } from './postgres.ts';

const MODULE = 'github.com/versity/versitygw';
const VERSION = 'v1.8.0';
const BUCKET = 'sandbar';

export type TestStore = {
  config: ObjectStoreConfig;
  /** Names of all objects. */
  keys(): string[];
  /** Path of an object's file. */
  fileOf(key: string): string;
  close(): Promise<void>;
};

/** Builds the server unless the cache has it, and starts it with an empty bucket. */
export async function startVersitygw(): Promise<TestStore> {
  const program = await buildVersitygw();
  const root = mkdtempSync(path.join(tmpdir(), 'sandbar-s3-'));
  const bucket = path.join(root, 'buckets', BUCKET);
  mkdirSync(bucket, { recursive: true });
  const port = await freePort();
  const credentials = { accessKeyId: 'test', secretAccessKey: 'the secret of the tests' };
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: credentials.accessKeyId,
    ROOT_SECRET_KEY: credentials.secretAccessKey,
  };
  const args = [
    '--port',
    `127.0.0.1:${port}`,
    '--quiet',
    'posix',
    '--sidecar',
    path.join(root, 'sidecar'),
    path.dirname(bucket),
  ];
  mkdirSync(path.join(root, 'sidecar'));
  const server: ChildProcess = spawn(program, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const endpoint = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (server.exitCode !== null) throw new Error('versitygw has ended');
    return fetch(endpoint).then(
      () => true,
      () => false,
    );
  }, 'versitygw answers');
  return {
    config: { endpoint, bucket: BUCKET, region: 'us-east-1', ...credentials },
    keys: () =>
      readdirSync(bucket, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => path.relative(bucket, path.join(parentPath, name)))
        .sort(),
    fileOf: (key) => path.join(bucket, key),
    close: async () => {
      // A gentle stop would wait for connections that the hosts keep open.
      server.kill('SIGKILL');
      if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
      rmSync(root, { recursive: true, force: true });
    },
  };
}

/** `npm test` names its Go toolchain in SANDBAR_TEST_GO. Without that, `go` must be on the PATH or in /usr/local/go. */
async function buildVersitygw(): Promise<string> {
  const cacheDir = path.resolve(defaultCache(process.env, process.getuid?.() === 0));
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'versitygw'),
    cacheKey(`${MODULE}@${VERSION}`),
    async (temporary) => {
      const PATH = `${process.env.PATH}:/usr/local/go/bin`;
      const env = { ...process.env, ...goEnvironment(cacheDir), PATH, GOBIN: temporary };
      const go = process.env.SANDBAR_TEST_GO ?? 'go';
      await promisify(execFile)(go, ['install', `${MODULE}/cmd/versitygw@${VERSION}`], { env });
    },
    ['versitygw'],
  );
  return path.join(folder, 'versitygw');
}
