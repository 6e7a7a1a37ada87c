// Tests the TypeScript SDK with the real service: its first example, exact output over connections that break, and the
// errors of the service.
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import {
  Client,
  ConflictError,
  DiskFullError,
  EndpointRetiredError,
  ForbiddenError,
  InsufficientBalanceError,
  JobLostError,
  MethodNotAllowedError,
  NotFoundError,
  PayloadTooLargeError,
  PortNotOpenError,
  QuotaExceededError,
  RangeNotSatisfiableError,
  RateLimitedError,
  type SandbarError,
  Sandbox,
  UnauthenticatedError,
  UnsupportedMediaTypeError,
  ValidationError,
} from '@sandbar/sdk';
import { createAccount } from '../e2e/support/accounts.ts';
import { API_KEY, BASE_URL } from '../e2e/support/service.ts';
import { startCuttingProxy } from './support/cutting-proxy.ts';

const client = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });
const SMALL = { memoryMb: 256, rootfsSizeGb: 2, expiresInSec: 900 };
const MB = 1024 * 1024;

describe('the TypeScript SDK', () => {
  let sandbox: Sandbox;
  before(async () => {
    sandbox = await Sandbox.create({ client, ...SMALL });
  });
  after(() => sandbox.destroy());

  it('creates a machine, runs commands in it, moves files, and destroys it at the end of the block', async () => {
    let id: string;
    {
      await using block = await Sandbox.create({ client, ...SMALL, env: { GREETING: 'hello' } });
      id = block.id;
      await block.files.write('/root/in.txt', 'from outside');
      const result = await block.exec('cat /root/in.txt; echo "$GREETING $NAME" >&2; exit 3', { env: { NAME: 'you' } });
      assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, 'from outside', 'hello you\n']);
      assert.equal((await block.exec(['cat'], { stdin: 'typed' })).stdout, 'typed');
      const both = await block.exec('echo 1; echo 2 >&2; echo 3', { mergeOutput: true });
      assert.equal(both.combined, '1\n2\n3\n');
    }
    assert.equal((await client.machines.get(id)).state, 'destroyed');
    await assert.rejects(Sandbox.connect(id, { client }), NotFoundError);
  });

  it('reports a signal, a time-out, and a machine that stopped while a command ran', async () => {
    const killed = await sandbox.exec('kill -9 $$');
    assert.deepEqual([killed.exitCode, killed.signal, killed.timedOut], [137, 'SIGKILL', false]);
    const late = await sandbox.exec('sleep 60', { timeoutSec: 1 });
    assert.deepEqual([late.exitCode, late.timedOut], [124, true]);
    const job = await sandbox.start('sleep 60');
    await sandbox.stop();
    await assert.rejects(job.result(), JobLostError);
    assert.equal((await sandbox.resume()).state, 'running');
  });

  it('yields both output streams of a job as they arrive, and writes its input', async () => {
    const job = await sandbox.start('echo ready; read line; echo "got $line" >&2', { stdinOpen: true });
    let text = '';
    for await (const { stream, data } of job.output()) {
      text += `${stream}: ${Buffer.from(data)}`;
      if (text === 'stdout: ready\n') await job.stdin.write('this\n');
    }
    assert.equal(text, 'stdout: ready\nstderr: got this\n');
    assert.equal((await job.wait()).exit_code, 0);
  });

  it('yields the exact 100 MB of a job although the connection is cut ten times', async () => {
    const proxy = await startCuttingProxy(BASE_URL, { bytes: 10 * MB, times: 10 });
    try {
      const cut = new Client({ baseUrl: proxy.baseUrl, apiKey: API_KEY });
      const job = await cut
        .sandbox(sandbox.id)
        .start('head -c 104857600 /dev/urandom > /root/random; sha256sum < /root/random >&2; cat /root/random');
      const hash = createHash('sha256');
      let [bytes, sum] = [0, ''];
      for await (const { stream, offset, data } of job.output()) {
        if (stream === 'stderr') sum += Buffer.from(data);
        else {
          assert.equal(offset, bytes);
          bytes += data.length;
          hash.update(data);
        }
      }
      assert.equal(bytes, 100 * MB);
      assert.equal(`${hash.digest('hex')}  -\n`, sum);
      assert.equal(proxy.cuts(), 10);
    } finally {
      proxy.close();
    }
  });
});

describe('the errors of the service in the TypeScript SDK', () => {
  let sandbox: Sandbox;
  before(async () => {
    sandbox = await Sandbox.create({ client, ...SMALL });
  });
  after(() => sandbox.destroy());

  /** Creates an account with these settings, and a client for it. */
  const newClient = async (options: object) =>
    new Client({ baseUrl: BASE_URL, apiKey: (await createAccount(options)).api_key, retryForSec: 0 });

  /**
   * For each error class, a call that throws it. Errors that need a fault of the service are tested in client.test.ts of
   * the SDK.
   */
  const cases: [typeof SandbarError, () => Promise<unknown>][] = [
    [ValidationError, () => Sandbox.create({ client, vcpus: 0 })],
    [UnauthenticatedError, () => new Client({ baseUrl: BASE_URL, apiKey: 'sbr_wrong' }).account.get()],
    [
      InsufficientBalanceError,
      async () => Sandbox.create({ client: await newClient({ billing_mode: 'prepaid' }), ...SMALL }),
    ],
    [ForbiddenError, () => client.apiKeys.list()],
    [QuotaExceededError, async () => (await newClient({ tier: 'free' })).volumes.create({ size_gb: 1024 })],
    [NotFoundError, () => client.machines.get(randomUUID())],
    [MethodNotAllowedError, () => client.request('PATCH', '/v1/images')],
    [ConflictError, () => sandbox.files.write('/etc/hostname', 'x', { overwrite: false })],
    [EndpointRetiredError, () => client.request('POST', `/v1/machines/${sandbox.id}/exec`, { body: {} })],
    [PayloadTooLargeError, () => client.request('POST', '/v1/machines', { body: { name: 'x'.repeat(2 * MB) } })],
    [
      UnsupportedMediaTypeError,
      () =>
        client.request('POST', '/v1/machines', {
          body: {},
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
        }),
    ],
    [RangeNotSatisfiableError, () => sandbox.files.read('/etc/hostname', { start: 1_000_000 })],
    [PortNotOpenError, () => sandbox.ports.connect(9)],
    [DiskFullError, () => sandbox.files.write('/dev/shm/large', new Uint8Array(200 * MB))],
    [
      RateLimitedError,
      async () => {
        const hasty = await newClient({});
        await Promise.all(Array.from({ length: 100 }, () => hasty.volumes.delete(randomUUID()).catch(rethrowLimit)));
      },
    ],
  ];
  const rethrowLimit = (error: unknown) => {
    if (!(error instanceof NotFoundError)) throw error;
  };

  for (const [Class, provoke] of cases) {
    it(`${Class.name} is thrown`, async () => {
      await assert.rejects(provoke(), (error) => {
        assert.ok(error instanceof Class, `${error}`);
        assert.notEqual(error.requestId, null);
        assert.notEqual(error.detail, '');
        return true;
      });
    });
  }
});
