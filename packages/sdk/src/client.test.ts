import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { after, before, beforeEach, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ERROR_TABLE } from '@sandbar/contract/errors.ts';
import { toText } from './bytes.ts';
import { Client } from './client.ts';
import { ConnectionError } from './errors.ts';
import * as sdk from './index.ts';
import { OutputExpiredError, SandbarError } from './service-errors.ts';

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

let server: Server;
let sandbar: Client;
/** A client that never retries. */
let impatient: Client;
let handle: Handler;
let requests: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[];

before(async () => {
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    requests.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body });
    handle(request, response, body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const settings = { baseUrl: `http://127.0.0.1:${address.port}/`, apiKey: 'sbr_key' };
  sandbar = new Client(settings);
  impatient = new Client({ ...settings, retryForSec: 0 });
});
after(() => server.close());
beforeEach(() => {
  requests = [];
  handle = (_request, response) => answer(response, 200, {});
});

function answer(response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

function page(from: Buffer, offset: number, length: number, eof: boolean): string {
  const data = from.subarray(offset, offset + length);
  const next = offset + data.length;
  const json = JSON.stringify({
    offset,
    data: data.toString('base64'),
    next_offset: next,
    total_bytes: from.length,
    eof,
  });
  return `id: ${next}\ndata: ${json}\n\n`;
}

async function collect(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

describe('client', () => {
  it('every request carries the key and a User-Agent', async () => {
    handle = (_request, response) => answer(response, 200, { machines: [] });
    assert.deepEqual(await sandbar.machines.list({ name: 'a b', metadata: { team: 'x&y' } }), []);
    assert.equal(requests[0]?.url, '/v1/machines?name=a+b&metadata.team=x%26y');
    assert.equal(requests[0]?.headers.authorization, 'Bearer sbr_key');
    assert.match(requests[0]?.headers['user-agent'] ?? '', /^sandbar-sdk-ts\/\d/);
  });

  it('create sends the body', async () => {
    handle = (_request, response) => answer(response, 201, { id: 'm' });
    await sandbar.machines.create({ vcpus: 2 });
    assert.deepEqual([requests[0]?.method, requests[0]?.body], ['POST', '{"vcpus":2}']);
  });

  it('create sends the idempotency key, and destroy its options', async () => {
    await sandbar.machines.create({}, { idempotencyKey: 'once' });
    await sandbar.machines.destroy('m', { preserveStorage: true });
    await sandbar.machines.destroy('m', { deleteSnapshots: true });
    assert.equal(requests[0]?.headers['idempotency-key'], 'once');
    assert.equal(requests[1]?.url, '/v1/machines/m?preserve_storage=true');
    assert.equal(requests[2]?.url, '/v1/machines/m?delete_snapshots=true');
  });

  it('update sends the changes', async () => {
    await sandbar.machines.update('m', { expires_in_sec: null, on_expiry: 'stop' });
    assert.deepEqual(
      [requests[0]?.method, requests[0]?.url, requests[0]?.body],
      ['PATCH', '/v1/machines/m', '{"expires_in_sec":null,"on_expiry":"stop"}'],
    );
  });

  it('volumes are created, attached and detached with the right requests', async () => {
    handle = (request, response) => answer(response, request.url === '/v1/volumes' ? 201 : 200, { id: 'v' });
    assert.equal((await sandbar.volumes.create({ name: 'x', size_gb: 5 })).id, 'v');
    await sandbar.volumes.attach('v', { machine_id: 'm', mount_path: '/data' });
    await sandbar.volumes.detach('v/w');
    assert.deepEqual(
      requests.map(({ method, url, body }) => [method, url, body]),
      [
        ['POST', '/v1/volumes', '{"name":"x","size_gb":5}'],
        ['POST', '/v1/volumes/v/attach', '{"machine_id":"m","mount_path":"/data"}'],
        ['POST', '/v1/volumes/v%2Fw/detach', ''],
      ],
    );
  });

  it('snapshots are taken, listed, restored and deleted with the right requests', async () => {
    handle = (request, response) => {
      const isList = request.method === 'GET' && /snapshots(\?|$)/.test(request.url ?? '');
      answer(response, 200, isList ? { snapshots: [{ id: 's' }] } : { id: 's' });
    };
    assert.equal((await sandbar.snapshots.create('m/n', { memory: true })).id, 's');
    await sandbar.sandbox('m').snapshot();
    assert.deepEqual(await sandbar.snapshots.list({ kind: 'disk' }), [{ id: 's' }]);
    assert.deepEqual(await sandbar.snapshots.list({ machineId: 'm' }), [{ id: 's' }]);
    await sandbar.snapshots.get('s');
    await sandbar.snapshots.restore('s');
    await sandbar.snapshots.delete('s');
    assert.deepEqual(
      requests.map(({ method, url, body }) => [method, url, body]),
      [
        ['POST', '/v1/machines/m%2Fn/snapshots', '{"memory":true}'],
        ['POST', '/v1/machines/m/snapshots', '{}'],
        ['GET', '/v1/snapshots?kind=disk', ''],
        ['GET', '/v1/machines/m/snapshots', ''],
        ['GET', '/v1/snapshots/s', ''],
        ['POST', '/v1/snapshots/s/restore', ''],
        ['DELETE', '/v1/snapshots/s', ''],
      ],
    );
  });

  it('every code of the error table has its own class, and a response with the code throws that class', async () => {
    for (const [code, { status }] of Object.entries(ERROR_TABLE)) {
      const name = `${code.replace(/(^|_)([a-z])/g, (_, _2, letter: string) => letter.toUpperCase()).replace(/Error$/, '')}Error`;
      handle = (_request, response) => answer(response, status, { code, detail: 'no' });
      await assert.rejects(impatient.quotas.get(), (error) => {
        assert.ok(error instanceof SandbarError);
        assert.deepEqual([error.name, error.constructor.name, error.status, error.code], [name, name, status, code]);
        assert.ok(Object.hasOwn(sdk, name), `${name} is exported`);
        return true;
      });
    }
  });

  it('an unknown code is a SandbarError, even if it is the name of an inherited property', async () => {
    for (const code of ['new_code', 'toString', '__proto__']) {
      handle = (_request, response) => answer(response, 418, { code, detail: 'no' });
      await assert.rejects(impatient.quotas.get(), { name: 'SandbarError', status: 418, code });
    }
  });

  it('usage sends the range and the grouping, and can also be read as CSV', async () => {
    handle = (request, response) => {
      if (request.headers.accept === 'text/csv') response.end('kind,amount\n');
      else answer(response, 200, { total: '1.000000' });
    };
    const filter = { from: '2026-01-01T00:00:00Z', groupBy: 'metadata.a b', machineId: 'm' };
    assert.deepEqual(await sandbar.billing.usage(filter), { total: '1.000000' });
    assert.equal(await sandbar.billing.usageCsv({ groupBy: 'day' }), 'kind,amount\n');
    await sandbar.billing.usage();
    assert.deepEqual(
      requests.map(({ url }) => url),
      [
        '/v1/billing/usage?from=2026-01-01T00%3A00%3A00Z&group_by=metadata.a+b&machine_id=m',
        '/v1/billing/usage?group_by=day',
        '/v1/billing/usage',
      ],
    );
  });

  it('usage as CSV is retried, and a refusal is an error', async () => {
    let attempts = 0;
    handle = (_request, response) => {
      if (attempts++ > 0) response.end('kind\n');
      else answer(response, 503, { code: 'database_unavailable', detail: 'no' }, { 'retry-after': '0' });
    };
    assert.equal(await sandbar.billing.usageCsv(), 'kind\n');
    assert.equal(attempts, 2);
    handle = (_request, response) => answer(response, 400, { code: 'validation_error', detail: 'from' });
    await assert.rejects(sandbar.billing.usageCsv(), { code: 'validation_error' });
  });

  it('ledger follows the cursor to the end, and an entry is read by its id', async () => {
    handle = (request, response) =>
      answer(response, 200, {
        entries: [{ id: request.url?.includes('cursor=2') ? 'b' : 'a' }],
        next_cursor: request.url?.includes('cursor=2') ? '' : '2',
      });
    const ids: string[] = [];
    for await (const { id } of sandbar.billing.ledger({ kind: 'charge' })) ids.push(id);
    assert.deepEqual(ids, ['a', 'b']);
    assert.equal(requests[1]?.url, '/v1/billing/ledger?kind=charge&page_size=1000&cursor=2');
    await sandbar.billing.ledgerPage({}, { pageSize: 5 });
    assert.equal(requests[2]?.url, '/v1/billing/ledger?page_size=5');
    await sandbar.billing.entry('a/b');
    assert.equal(requests[3]?.url, '/v1/billing/ledger/a%2Fb');
  });

  it('activity follows the cursor to the end', async () => {
    handle = (request, response) =>
      answer(response, 200, {
        activity: [{ action: request.url?.includes('cursor=2') ? 'exec' : 'machine.started' }],
        next_cursor: request.url?.includes('cursor=2') ? '' : '2',
      });
    const actions: string[] = [];
    for await (const { action } of sandbar.activity.list({ category: 'all', machineId: 'm' })) actions.push(action);
    assert.deepEqual(actions, ['machine.started', 'exec']);
    assert.equal(requests[1]?.url, '/v1/machines/m/activity?category=all&page_size=200&cursor=2');
  });

  it('an error answer throws a SandbarError with code, detail, request id and Retry-After', async () => {
    handle = (_request, response) =>
      answer(response, 503, { code: 'fleet_capacity', detail: 'full' }, { 'x-request-id': 'r1', 'retry-after': '5' });
    await assert.rejects(impatient.machines.get('m'), (error) => {
      assert.ok(error instanceof SandbarError);
      assert.deepEqual(
        [error.status, error.code, error.detail, error.requestId, error.retryAfterSec],
        [503, 'fleet_capacity', 'full', 'r1', 5],
      );
      return true;
    });
  });

  it('an HTML page of a proxy throws a SandbarError with code unknown, even with status 200', async () => {
    for (const status of [502, 200]) {
      handle = (_request, response) => response.writeHead(status).end('<html>');
      await assert.rejects(sandbar.images.list(), { name: 'SandbarError', status, code: 'unknown' });
    }
    assert.equal(requests.length, 2);
  });

  it('a refused connection is a ConnectionError that names the address', async () => {
    const nobody = new Client({ baseUrl: 'http://127.0.0.1:2', apiKey: 'k', retryForSec: 0 });
    await assert.rejects(nobody.images.list(), (error) => {
      assert.ok(error instanceof ConnectionError);
      assert.match(error.message, /127\.0\.0\.1:2 \(ECONNREFUSED\)/);
      return true;
    });
  });

  it('wait repeats its request until the job has ended', async () => {
    handle = (_request, response) =>
      answer(response, 200, { id: 'e', status: requests.length < 3 ? 'running' : 'exited', exit_code: 0 });
    assert.equal((await sandbar.execs.wait('m', 'e')).status, 'exited');
    assert.equal(requests.length, 3);
    assert.match(requests[0]?.url ?? '', /wait_ms=\d+/);
  });

  it('an abort ends a request and throws its reason', async () => {
    const controller = new AbortController();
    handle = () => controller.abort(new Error('enough'));
    await assert.rejects(sandbar.execs.wait('m', 'e', { signal: controller.signal }), { message: 'enough' });
  });
});

describe('run', () => {
  const first = (text: string, eof: boolean) => ({
    offset: 0,
    data: Buffer.from(text).toString('base64'),
    next_offset: Buffer.byteLength(text),
    eof,
  });

  it('a short command takes one request', async () => {
    handle = (_request, response) =>
      answer(response, 201, {
        id: 'e',
        status: 'exited',
        exit_code: 3,
        output: { stdout: first('out', true), stderr: first('', true) },
      });
    const command = { argv: ['x'], name: 'label', merge_output: true, exec_id: 'mine' };
    const { job, stdout, stderr } = await sandbar.execs.run('m', command);
    assert.deepEqual([job, toText(stdout), toText(stderr)], [{ id: 'e', status: 'exited', exit_code: 3 }, 'out', '']);
    assert.equal(requests.length, 1);
    assert.match(requests[0]?.url ?? '', /^\/v1\/machines\/m\/execs\?wait_ms=\d+$/);
    assert.deepEqual(JSON.parse(requests[0]?.body ?? ''), command);
  });

  it('reads the rest of a stream after its first page, and waits for the end of the job', async () => {
    const whole = Buffer.from('first and second');
    handle = (request, response) => {
      const path = request.url ?? '';
      if (request.method === 'POST') {
        const output = { stdout: first('first', false), stderr: first('err', true) };
        answer(response, 201, { id: 'e', status: 'running', output });
      } else if (path.includes('/output')) {
        response.writeHead(200).end(page(whole, 5, 100, true));
      } else answer(response, 200, { id: 'e', status: 'exited', exit_code: 0 });
    };
    const { job, stdout, stderr } = await sandbar.execs.run('m', { argv: ['x'] });
    assert.deepEqual([job.status, toText(stdout), toText(stderr)], ['exited', `${whole}`, 'err']);
    const paths = requests.map(({ method, url }) => `${method} ${url.split('?')[0]}`);
    assert.deepEqual(paths.sort(), [
      'GET /v1/machines/m/execs/e',
      'GET /v1/machines/m/execs/e/output',
      'POST /v1/machines/m/execs',
    ]);
    assert.ok(requests.some(({ url, headers }) => /offset=5\b/.test(url) && headers['last-event-id'] === '5'));
  });

  it('output that was dropped before it was read throws an error, and never looks like empty or short output (RES-1)', async () => {
    const expired = { code: 'output_expired', detail: 'no' };
    for (const output of [undefined, { stdout: first('first', false), stderr: first('', true) }]) {
      handle = (request, response) => {
        if (request.method !== 'POST') return answer(response, 410, expired);
        answer(response, 201, { id: 'e', status: 'exited', exit_code: 0, output_expired: true, output });
      };
      await assert.rejects(sandbar.execs.run('m', { argv: ['x'] }), OutputExpiredError);
    }
  });

  it('start without waitMs requests no output', async () => {
    handle = (_request, response) => answer(response, 201, { id: 'e' });
    await sandbar.execs.start('m', { argv: ['x'] });
    assert.equal(requests[0]?.url, '/v1/machines/m/execs');
  });
});

describe('streamOutput', () => {
  const bytes = Buffer.from(Array.from({ length: 1000 }, (_, index) => (index * 7) % 256));

  it('yields exact bytes until the end', async () => {
    handle = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(`: heartbeat\n\n${page(bytes, 0, 600, false)}${page(bytes, 600, 400, true)}`);
    };
    const chunks = await collect(sandbar.execs.streamOutput('m', 'e', 'stdout'));
    assert.ok(chunks.every((chunk) => chunk instanceof Uint8Array));
    assert.deepEqual(Buffer.concat(chunks), bytes);
  });

  it('after a broken connection it continues at the same byte', async () => {
    handle = (request, response) => {
      const from = Number(request.headers['last-event-id'] ?? 0);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (from === 0) {
        // Cut the connection in the middle of the second page.
        response.write(page(bytes, 0, 300, false) + page(bytes, 300, 300, false).slice(0, 100), () =>
          response.destroy(),
        );
      } else if (from === 300) {
        // End the stream without an error, but before the end of the output, as the service does when it shuts down.
        response.end(page(bytes, 300, 300, false));
      } else {
        response.end(page(bytes, from, 1000, true));
      }
    };
    const chunks = await collect(sandbar.execs.streamOutput('m', 'e', 'stdout'));
    assert.deepEqual(Buffer.concat(chunks), bytes);
    assert.deepEqual(
      requests.map(({ headers }) => headers['last-event-id']),
      [undefined, '300', '600'],
    );
  });

  it('does not repeat the request when the service refuses it', async () => {
    handle = (_request, response) => answer(response, 404, { code: 'not_found', detail: 'no such job' });
    await assert.rejects(collect(sandbar.execs.streamOutput('m', 'e', 'stderr')), { code: 'not_found' });
    assert.equal(requests.length, 1);
  });
});

describe('an abort', () => {
  it('ends a stream that is being read, even after a garbage collection', { timeout: 20_000 }, async (t) => {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    handle = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(page(Buffer.from('text'), 0, 2, false));
      t.after(() => response.destroy());
    };
    const stop = new AbortController();
    const chunks = sandbar.execs.streamOutput('m', 'e', 'stdout', { signal: stop.signal });
    await chunks.next();
    const next = chunks.next();
    for (let round = 0; round < 5; round++) {
      collectGarbage();
      await setImmediate();
    }
    stop.abort();
    await assert.rejects(next, { name: 'AbortError' });
  });
});
