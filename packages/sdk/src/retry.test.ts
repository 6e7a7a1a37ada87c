// Tests the retries against a server with a list of faults. Each request gets the next fault of the list. When the list
// is empty, requests succeed.
import assert from 'node:assert/strict';
import { subscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Client } from './client.ts';
import { ConnectionError } from './errors.ts';

/**
 * `broken`: the server reads the request and closes the connection. `cut`: it closes the connection in the middle of a
 * successful answer. `silent`: it never answers. `late`: it answers successfully after 300 ms. A number: it answers with
 * this status.
 */
type Fault = 'broken' | 'cut' | 'silent' | 'late' | number;
type Request = { method: string; path: string; body: string; idempotencyKey: string | undefined };

const CODES: Record<number, string> = {
  400: 'validation_error',
  404: 'not_found',
  409: 'conflict',
  429: 'rate_limited',
  500: 'internal_error',
  503: 'host_unavailable',
};

let server: Server;
let settings: { baseUrl: string; apiKey: string };
let sandbar: Client;
let faults: Fault[];
let requests: Request[];
let retryAfter: string | undefined;
let answer: object;

before(async () => {
  server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    const { method = '', url: path = '', headers } = request;
    requests.push({ method, path, body, idempotencyKey: headers['idempotency-key']?.toString() });
    respond(response, faults.shift() ?? 200);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  settings = { baseUrl: `http://127.0.0.1:${address.port}`, apiKey: 'sbr_key' };
  sandbar = new Client(settings);
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  faults = [];
  requests = [];
  retryAfter = undefined;
  answer = { id: 'x', state: 'running', status: 'exited' };
});

function respond(response: ServerResponse, fault: Fault): void {
  if (fault === 'broken') {
    response.destroy();
    return;
  }
  const headers = { 'content-type': 'application/json', ...(retryAfter ? { 'retry-after': retryAfter } : {}) };
  if (fault === 'silent') return;
  if (fault === 'late') {
    setTimeout(() => respond(response, 200), 300);
    return;
  }
  if (fault === 'cut') {
    response.writeHead(200, headers).write('{"id":', () => response.destroy());
    return;
  }
  const body = fault === 200 ? answer : { code: CODES[fault], detail: 'no' };
  response.writeHead(fault, headers).end(JSON.stringify(body));
}

/** Every call that may be sent again after its connection broke. */
const REPEATABLE: Record<string, () => Promise<unknown>> = {
  'machines.get': () => sandbar.machines.get('m'),
  'machines.create': () => sandbar.machines.create(),
  'machines.update': () => sandbar.machines.update('m', { name: 'n' }),
  'machines.start': () => sandbar.machines.start('m'),
  'machines.stop': () => sandbar.machines.stop('m'),
  'machines.destroy': () => sandbar.machines.destroy('m'),
  'volumes.create': () => sandbar.volumes.create({ size_gb: 1 }),
  'snapshots.create': () => sandbar.snapshots.create('m'),
  'volumes.attach': () => sandbar.volumes.attach('v', { machine_id: 'm' }),
  'volumes.detach': () => sandbar.volumes.detach('v'),
  'volumes.delete': () => sandbar.volumes.delete('v'),
  'snapshots.restore': () => sandbar.snapshots.restore('s'),
  'snapshots.delete': () => sandbar.snapshots.delete('s'),
  'execs.start': () => sandbar.execs.start('m', { argv: ['true'] }),
  'execs.wait': () => sandbar.execs.wait('m', 'e'),
  'execs.cancel': () => sandbar.execs.cancel('m', 'e'),
};

/** Calls that must not be sent twice, because the service would carry them out twice. */
const NOT_REPEATABLE: Record<string, () => Promise<unknown>> = {
  'apiKeys.create': () => sandbar.apiKeys.create({ name: 'k', scope: 'read' }),
};

describe('retries', () => {
  for (const [name, call] of Object.entries({ ...REPEATABLE, ...NOT_REPEATABLE })) {
    it(`${name} is sent again, unchanged, after a 429 and a 503`, async () => {
      faults = [429, 503];
      await call();
      assert.equal(requests.length, 3);
      assert.deepEqual(requests[1], requests[0]);
      assert.deepEqual(requests[2], requests[0]);
    });

    it(`${name} is not sent again after a 400 or a 500`, async () => {
      for (const status of [400, 500]) {
        requests = [];
        faults = [status];
        await assert.rejects(call(), { status });
        assert.equal(requests.length, 1);
      }
    });
  }

  for (const [name, call] of Object.entries(REPEATABLE)) {
    it(`${name} is sent again, unchanged, after a broken connection`, async () => {
      faults = ['broken', 'cut'];
      await call();
      assert.equal(requests.length, 3);
      assert.deepEqual(requests[2], requests[0]);
    });
  }

  for (const [name, call] of Object.entries(NOT_REPEATABLE)) {
    it(`${name} is not sent again after a broken connection`, async () => {
      faults = ['broken'];
      await assert.rejects(call(), { name: 'ConnectionError' });
      assert.equal(requests.length, 1);
    });
  }

  it('each create gets a new idempotency key, unless the caller gives one', async () => {
    await sandbar.machines.create();
    await sandbar.machines.create();
    await sandbar.machines.create({}, { idempotencyKey: 'mine' });
    const [first, second, third] = requests.map(({ idempotencyKey }) => idempotencyKey);
    assert.match(first ?? '', /^[0-9a-f-]{36}$/);
    assert.notEqual(first, second);
    assert.equal(third, 'mine');
  });

  it('an exec start whose answer was lost returns the job that it started', async () => {
    faults = ['broken', 409];
    answer = { id: 'the job', status: 'running' };
    assert.equal((await sandbar.execs.start('m', { argv: ['true'] })).id, 'the job');
    const { exec_id } = JSON.parse(requests[0]?.body ?? '');
    assert.deepEqual(
      requests.map(({ method, path }) => `${method} ${path}`),
      ['POST /v1/machines/m/execs', 'POST /v1/machines/m/execs', `GET /v1/machines/m/execs/${exec_id}`],
    );
  });

  it('an exec start throws a conflict when none of its earlier requests can have started the job', async () => {
    faults = [409];
    await assert.rejects(sandbar.execs.start('m', { argv: ['true'], exec_id: 'used' }), { code: 'conflict' });
    faults = [429, 409];
    await assert.rejects(sandbar.execs.start('m', { argv: ['true'], exec_id: 'used' }), { code: 'conflict' });
    faults = ['broken', 409, 404];
    await assert.rejects(sandbar.execs.start('m', { argv: ['true'] }), { code: 'conflict' });
  });

  it('a destroy whose answer was lost returns the destroyed machine', async () => {
    faults = ['broken', 404];
    answer = { id: 'm', state: 'destroyed' };
    assert.equal((await sandbar.machines.destroy('m')).state, 'destroyed');
    faults = [404];
    await assert.rejects(sandbar.machines.destroy('m'), { code: 'not_found' });
  });

  it('a delete whose answer was lost succeeds', async () => {
    for (const call of [() => sandbar.volumes.delete('v'), () => sandbar.snapshots.delete('s')]) {
      faults = ['broken', 404];
      await call();
      faults = [404];
      await assert.rejects(call(), { code: 'not_found' });
    }
  });

  it('a retry waits as long as Retry-After says', async () => {
    retryAfter = '1';
    faults = Array<Fault>(20).fill(429);
    let acceptsFrom: number | undefined;
    // The server refuses requests for 0.9 s, so a client that ignores Retry-After sends more than two.
    const endRefusals = () => {
      acceptsFrom ??= performance.now() + 900;
      if (performance.now() >= acceptsFrom) faults = [];
    };
    server.prependListener('request', endRefusals);
    await sandbar.machines.get('m');
    server.removeListener('request', endRefusals);
    assert.equal(requests.length, 2);
  });

  it('an error whose Retry-After is longer than the time for retries is thrown at once', async () => {
    const client = new Client({ ...settings, retryForSec: 5 });
    retryAfter = '3600';
    faults = [503];
    await assert.rejects(client.machines.get('m'), { status: 503, retryAfterSec: 3600 });
    assert.equal(requests.length, 1);
  });

  it('an error whose Retry-After is over 20 s is thrown at once', async () => {
    const client = new Client({ ...settings, retryForSec: 3600 });
    retryAfter = '21';
    faults = [429];
    await assert.rejects(client.machines.get('m'), { status: 429, retryAfterSec: 21 });
    assert.equal(requests.length, 1);
  });

  it('a call that takes longer than timeoutMs throws a TimeoutError, and is not sent again', async () => {
    faults = ['silent'];
    await assert.rejects(sandbar.machines.get('m', { timeoutMs: 50 }), { name: 'TimeoutError' });
    assert.equal(requests.length, 1);
    faults = ['silent'];
    const client = new Client({ ...settings, timeoutMs: 50 });
    await assert.rejects(client.machines.get('m'), (error) => error instanceof ConnectionError);
  });

  it('a call that waits for a command ignores the timeoutMs of the client, but obeys a timeoutMs of its own', async () => {
    faults = ['late'];
    const client = new Client({ ...settings, timeoutMs: 50 });
    assert.equal((await client.execs.wait('m', 'e')).status, 'exited');
    faults = ['silent', 'silent'];
    const own = { timeoutMs: 50 };
    await assert.rejects(client.execs.wait('m', 'e', own), { name: 'TimeoutError' });
    await assert.rejects(client.execs.run('m', { argv: ['x'] }, own), { name: 'TimeoutError' });
  });

  it('timeoutMs includes the retries of a call', async () => {
    faults = Array<Fault>(100).fill(503);
    await assert.rejects(sandbar.machines.get('m', { timeoutMs: 500 }), { name: 'TimeoutError' });
    assert.ok(requests.length > 1);
  });

  it('retries end when their time is over, and the last error is thrown', async () => {
    const client = new Client({ ...settings, retryForSec: 1 });
    faults = Array<Fault>(100).fill(503);
    await assert.rejects(client.machines.get('m'), { code: 'host_unavailable' });
    assert.ok(requests.length > 1 && faults.length > 0, `${requests.length} requests`);
  });

  it('retryForSec 0 turns retries off', async () => {
    const client = new Client({ ...settings, retryForSec: 0 });
    for (const fault of [429, 503, 'broken'] as const) {
      requests = [];
      faults = [fault];
      await assert.rejects(client.machines.get('m'));
      assert.equal(requests.length, 1);
    }
  });

  it('an address where nobody listens is reported long before the time for retries is over', async () => {
    for (const port of [1, 2]) {
      // If the client retried for the whole hour of `retryForSec`, the test would time out.
      const client = new Client({ baseUrl: `http://127.0.0.1:${port}`, apiKey: 'k', retryForSec: 3600 });
      await assert.rejects(client.machines.create(), { name: 'ConnectionError', isUnsent: true });
    }
  });

  it('input that cannot be sent throws a TypeError without a retry', async () => {
    const client = new Client({ ...settings, retryForSec: 3600 });
    await assert.rejects(client.machines.create({}, { idempotencyKey: 'a\nb' }), TypeError);
    assert.equal(requests.length, 0);
  });

  it('an abort ends the wait for a retry and throws its reason', async () => {
    const controller = new AbortController();
    retryAfter = '30';
    faults = [503];
    const call = sandbar.machines.get('m', { signal: controller.signal });
    server.once('request', (_request, response: ServerResponse) =>
      response.once('finish', () => setImmediate(() => controller.abort(new Error('enough')))),
    );
    await assert.rejects(call, { message: 'enough' });
    assert.equal(requests.length, 1);
  });

  it('a client reconnects after a restart of the service', async () => {
    const other = createServer((_request, response) => respond(response, 200)).listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    assert.ok(typeof address === 'object' && address !== null);
    const client = new Client({ baseUrl: `http://127.0.0.1:${address.port}`, apiKey: 'k' });
    await client.machines.get('m');
    other.closeAllConnections();
    await new Promise((resolve) => other.close(resolve));
    // Node's fetch reports a refused connection on this channel.
    const refused = new Promise((resolve) => subscribe('undici:client:connectError', resolve));
    const call = client.volumes.create({ size_gb: 1 });
    await refused;
    other.listen(address.port, '127.0.0.1');
    assert.equal((await call).id, 'x');
    other.closeAllConnections();
    other.close();
  });
});
