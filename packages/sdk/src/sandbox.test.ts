// Tests which requests `Sandbox` makes and what it returns. A server in this process gives prepared responses.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Client } from './client.ts';
import { Sandbox } from './sandbox.ts';

type Request = { line: string; body: Record<string, unknown> | undefined; headers: Record<string, unknown> };

let server: Server;
let client: Client;
let requests: Request[];
/** The prepared responses. The key is `METHOD /path`, without the query. */
let responses: Record<string, { status?: number; body: unknown }>;

before(async () => {
  server = createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString();
    const line = `${request.method} ${request.url}`;
    requests.push({ line, body: text === '' ? undefined : JSON.parse(text), headers: request.headers });
    const found = responses[line.split('?')[0] ?? ''] ?? { status: 404, body: { code: 'not_found', detail: 'no' } };
    response.writeHead(found.status ?? 200, { 'content-type': 'application/json' }).end(JSON.stringify(found.body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  client = new Client({ baseUrl: `http://127.0.0.1:${address.port}`, apiKey: 'k', retryForSec: 0 });
});
after(() => server.close());
beforeEach(() => {
  requests = [];
  responses = {
    'POST /v1/machines': { status: 201, body: { id: 'm' } },
    'DELETE /v1/machines/m': { body: { id: 'm', state: 'destroyed' } },
  };
});

/** Makes the answer for a job that has ended with this output. */
function ended(job: object, stdout: string | Uint8Array, stderr = ''): { status: number; body: unknown } {
  const page = (text: string | Uint8Array) => {
    const bytes = Buffer.from(text);
    return {
      offset: 0,
      data: bytes.toString('base64'),
      next_offset: bytes.length,
      total_bytes: bytes.length,
      eof: true,
    };
  };
  const record = { id: 'e', machine_id: 'm', status: 'exited', exit_code: 0, signal: null, truncated: false, ...job };
  return { status: 201, body: { ...record, output: { stdout: page(stdout), stderr: page(stderr) } } };
}

describe('a sandbox', () => {
  it('is created with its options under the names of the API and an idempotency key, and destroyed at the end of its block', async () => {
    {
      await using sandbox = await Sandbox.create({
        ...{ client, stack: 'python', vcpus: 2, memoryMb: 512, rootfsSizeGb: 4, env: { A: '1' } },
        ...{ expiresInSec: 600, onExpiry: 'stop', metadata: { a: 1 }, name: 'n', snapshotId: 's' },
        volumes: [{ volumeId: 'v', mountPath: '/data' }, { volumeId: 'w' }],
      });
      assert.equal(sandbox.id, 'm');
    }
    assert.deepEqual(
      requests.map(({ line }) => line),
      ['POST /v1/machines', 'DELETE /v1/machines/m'],
    );
    assert.deepEqual(requests[0]?.body, {
      ...{ stack: 'python', vcpus: 2, memory_mb: 512, rootfs_size_gb: 4, env: { A: '1' } },
      ...{ expires_in_sec: 600, on_expiry: 'stop', metadata: { a: 1 }, name: 'n', snapshot_id: 's' },
      volumes: [{ volume_id: 'v', mount_path: '/data' }, { volume_id: 'w' }],
    });
    assert.match(String(requests[0]?.headers['idempotency-key']), /^[0-9a-f-]{36}$/);
  });

  it('causes no error at the end of its block when it is gone already', async () => {
    delete responses['DELETE /v1/machines/m'];
    await using _sandbox = await Sandbox.create({ client });
  });

  it('is found by its id; a destroyed or unknown machine throws a NotFoundError', async () => {
    responses['GET /v1/machines/m'] = { body: { id: 'm', state: 'stopped' } };
    assert.equal((await Sandbox.connect('m', { client })).id, 'm');
    responses['GET /v1/machines/m'] = { body: { id: 'm', state: 'destroyed' } };
    await assert.rejects(Sandbox.connect('m', { client }), { name: 'NotFoundError' });
    await assert.rejects(Sandbox.connect('other', { client }), { name: 'NotFoundError' });
  });
});

describe('the result of a command', () => {
  const exec = 'POST /v1/machines/m/execs';
  const run = (...args: Parameters<Sandbox['exec']>) => client.sandbox('m').exec(...args);

  it('comes from one request', async () => {
    responses[exec] = ended({ exit_code: 3 }, 'out\n', 'err\n');
    const result = await run('exit 3', { cwd: '/tmp', env: { A: '1' }, stdin: 'ü', timeoutSec: 5, mergeOutput: true });
    assert.deepEqual(
      [result.exitCode, result.signal, result.timedOut, result.stdout, result.stderr, result.combined],
      [3, null, false, 'out\n', 'err\n', 'out\nerr\n'],
    );
    assert.equal(requests.length, 1);
    const { exec_id, ...body } = requests[0]?.body ?? {};
    assert.match(`${exec_id}`, /^[0-9a-f-]{36}$/);
    assert.deepEqual(body, {
      ...{ command: 'exit 3', cwd: '/tmp', env: { A: '1' }, timeout_sec: 5, merge_output: true },
      stdin: Buffer.from('ü').toString('base64'),
    });
  });

  it('has the exact bytes of the output, even when they are not text', async () => {
    const bytes = Uint8Array.from([0xef, 0xbb, 0xbf, 0, 255]);
    responses[exec] = ended({}, bytes);
    const result = await run(['cat', 'file']);
    assert.deepEqual([...result.stdoutBytes], [...bytes]);
    assert.equal(result.stdout, '\ufeff\0\ufffd');
    assert.deepEqual(requests[0]?.body?.argv, ['cat', 'file']);
  });

  it('has the exit code of a shell after a signal, and 124 after a time-out', async () => {
    responses[exec] = ended({ exit_code: null, signal: 'SIGKILL' }, '');
    let result = await run('x');
    assert.deepEqual([result.exitCode, result.signal, result.timedOut], [137, 'SIGKILL', false]);
    responses[exec] = ended({ status: 'timed_out', exit_code: null, signal: 'SIGTERM' }, '');
    result = await run('x');
    assert.deepEqual([result.exitCode, result.signal, result.timedOut], [124, 'SIGTERM', true]);
  });

  it('is a JobLostError when the machine died while the command ran', async () => {
    responses[exec] = ended({ status: 'lost', exit_code: null }, '');
    await assert.rejects(run('x'), { name: 'JobLostError', machineId: 'm', jobId: 'e' });
  });
});
