// Tests that a suspended account can read, but change nothing: on every route, on open streams and on ports of its
// machines.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { AccountDetails } from '@sandbar/contract/admin.ts';
import { WebSocket, WebSocketServer } from 'ws';
import { describeApis } from '../src/openapi/describe.ts';
import { callAdmin } from './support/admin.ts';
import { openStream } from './support/event-stream.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { portClient } from './support/port-client.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { startTerminalBed } from './support/terminal-bed.ts';
import { connect, refusal } from './support/terminal-client.ts';
import { TEST_ORIGIN } from './support/test-bed.ts';

// The spend guard would stop the machines whose streams these tests look at. It runs only when a test asks for it.
const { bed, api, plane, second, db, machine, open, ticketOf } = await startTerminalBed(10, { guardMs: 3_600_000 });
let signals = 0;
for (const { app } of bed.replicas) {
  app.reconcileSoon = () => {
    signals++;
  };
}
const { host, keys, accountId } = bed;
const cookie = await bed.session();
const asSession = { key: null, headers: { cookie, origin: TEST_ORIGIN } };
const admin = (action: string, account = accountId) =>
  callAdmin<AccountDetails & { code: string }>(
    plane.app.config.adminSocket,
    `/admin/accounts/${encodeURIComponent(account)}/${action}`,
    {},
  );
const suspend = async () => assert.equal((await admin('suspend')).status, 200);

const programs = new Programs(host);
await programs.serve(machine, 8000, (_request, response) => response.end('answered'));
const webSockets = new WebSocketServer({ noServer: true });
const server = await programs.serve(machine, 8001, () => undefined);
server.on('upgrade', (request, socket, head) => webSockets.handleUpgrade(request, socket, head, () => undefined));
const ports = portClient(bed, machine);

type Operation = { operationId: string; security: unknown[] };
const { api: document } = await describeApis();
const { paths } = document as { paths: Record<string, Record<string, Operation>> };
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([, { security }]) => security.length > 0)
    .map(([method, { operationId }]) => ({ path, method: method.toUpperCase(), operationId })),
);
/** These GETs change something: they open a connection to a program in a machine. */
const CHANGING_GETS = ['connectPort'];
const pathOf = (path: string) => path.replace('{port}', '8000').replaceAll(/\{\w+\}/g, randomUUID());

beforeEach(async () => {
  assert.equal((await admin('resume')).status, 200);
});
afterEach(() => {
  for (const name of ['files.watch', 'files.write'] as const) delete host.guestStreams[name];
});

describe('a suspended account', () => {
  for (const { path, method, operationId } of operations) {
    if (operationId === 'signOut') continue;
    const isRead = method === 'GET' && !CHANGING_GETS.includes(operationId);

    it(`${isRead ? 'may use' : 'is refused'} ${operationId}`, async () => {
      const url = pathOf(path);
      const ask = (options: object) => api(method, url, options);
      // Before the suspension, the request may fail for other reasons, but not because of the account.
      const before = await ask(asSession);
      assert(!before.text.includes('suspended'), before.text);
      await suspend();
      for (const options of [asSession, { key: keys.full }, { ...asSession, plane: second }]) {
        const answer = await ask(options);
        if (isRead) assert(!answer.text.includes('suspended'), answer.text);
        else {
          assert.equal(answer.json.code, 'forbidden');
          assert.equal(answer.status, 403);
        }
        if (!isRead && options !== asSession && 'plane' in options) assert.match(answer.json.detail, /is suspended/);
      }
    });
  }

  it('reads its machines, its account and its activity', async () => {
    await suspend();
    for (const path of [`/v1/machines/${machine}`, '/v1/machines', '/v1/account', '/v1/activity', '/v1/quotas']) {
      assert.equal((await api('GET', path)).status, 200, path);
      assert.equal((await api('GET', path, { key: keys.read })).status, 200, path);
    }
  });

  it('may sign in and out', async () => {
    await suspend();
    const own = await bed.session();
    const headers = { cookie: own, origin: TEST_ORIGIN };
    assert.equal((await api('GET', '/v1/api-keys', { key: null, headers })).status, 200);
    assert.equal((await api('POST', '/v1/auth/sign-out', { key: null, headers })).status, 204);
    assert.equal((await api('GET', '/v1/api-keys', { key: null, headers })).status, 401);
  });

  it('can do everything again at once when it is resumed', async () => {
    await suspend();
    assert.equal((await api('PATCH', `/v1/machines/${machine}`, { body: { name: 'a' } })).status, 403);
    const { json } = await admin('resume');
    assert.equal(json.suspended_at, null);
    const answer = await api('PATCH', `/v1/machines/${machine}`, { body: { name: 'a' }, plane: second });
    assert.equal(answer.status, 200);
  });

  it('does not affect another account', async () => {
    await suspend();
    assert.equal((await api('POST', '/v1/machines', { key: keys.other })).status, 201);
  });
});

describe('the suspension of an account', () => {
  it('ends its open terminals on every replica, and its tickets open no new terminal', async () => {
    const { client } = await open();
    const { client: elsewhere } = await open({}, {}, second);
    const ticket = await ticketOf();
    await suspend();
    for (const one of [client, elsewhere]) {
      const { code, reason } = await one.ends();
      assert.equal(code, 4403, reason);
      assert.match(reason, /^forbidden: The account is suspended/);
    }
    const { status, json } = await refusal(plane, machine, ticket);
    assert.deepEqual([status, json.code], [403, 'forbidden']);
    await admin('resume');
    const later = await connect(plane, machine, await ticketOf());
    later.socket.terminate();
  });

  it('ends a write to a file, and lets a watch of files go on', async () => {
    const [watching, writing] = [playStream(), playStream()];
    const opened: PlayedStream[] = [];
    const openAs = (stream: PlayedStream) => () => {
      opened.push(stream);
      return stream;
    };
    host.guestStreams['files.watch'] = openAs(watching);
    host.guestStreams['files.write'] = openAs(writing);
    const { address } = plane;
    const origin = `http://${address.host}:${address.port}`;
    const headers = { authorization: `Bearer ${keys.full}` };
    const watched = await fetch(`${origin}/v1/machines/${machine}/files/watch?path=/a`, { headers });
    const body = new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('x')) });
    const written = fetch(`${origin}/v1/machines/${machine}/files/content?path=/a`, {
      method: 'PUT',
      headers,
      body,
      duplex: 'half',
    } as RequestInit);
    await until(() => opened.length === 2, 'both are open');
    await suspend();
    const answer = await written;
    assert.equal(answer.status, 403);
    assert.match(await answer.text(), /is suspended/);
    watching.guest.write('{"type":"ready"}\n');
    const reader = watched.body?.getReader();
    assert.match(new TextDecoder().decode((await reader?.read())?.value), /ready/);
    await reader?.cancel();
  });

  it('lets a stream of output go on', async () => {
    const { json } = await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } });
    const { client } = await open();
    const path = `/v1/machines/${machine}/execs/${json.id}/output`;
    const stream = await openStream(plane, path, { authorization: `Bearer ${keys.full}` });
    await suspend();
    // The terminal ends with the first check of streams that sees the suspension, so the output was checked too.
    await client.ends();
    host.append(machine, json.id, Buffer.from('goes on'));
    await until(() => stream.events.some(({ data }) => data === 'goes on'), 'the stream goes on');
    host.endJob(machine, json.id);
    await stream.ended;
  });

  it('leaves its ports readable, and refuses every other request to them, public ports too', async () => {
    const path = `/v1/machines/${machine}/ports/8000`;
    const token = (await api('POST', `${path}/token`)).json.token;
    const bySession = (await api('POST', `${path}/token`, asSession)).json.token;
    await suspend();
    const check = async (headers: Record<string, string>) => {
      assert.equal((await ports.fetchText(8000, { headers })).status, 200);
      for (const method of ['POST', 'DELETE']) {
        const { status, text } = await ports.fetchText(8000, { method, headers });
        assert.equal(status, 403, text);
        assert.match(text, /is suspended/);
      }
    };
    for (const credential of [keys.full, token, bySession]) await check({ 'x-sandbar-key': credential });
    await admin('resume');
    await api('PUT', path, { body: { access: 'public' } });
    await suspend();
    // A key of another account reaches only the public ports of this one.
    await check({ 'x-sandbar-key': keys.other });
    await admin('resume');
    await api('DELETE', path);
  });

  it('ends WebSockets to its ports, whichever credential opened them', async () => {
    const path = `/v1/machines/${machine}/ports/8001`;
    const bySession = (await api('POST', `${path}/token`, asSession)).json.token;
    await api('PUT', path, { body: { access: 'public' } });
    const dial = async (headers: Record<string, string>) => {
      const socket = new WebSocket(`ws://${plane.address.host}:${plane.address.port}/`, {
        headers: { host: ports.nameOf(8001), ...headers },
      });
      socket.on('error', () => undefined);
      await until(() => socket.readyState !== WebSocket.CONNECTING, 'there is an answer');
      return socket;
    };
    const anybody = await dial({});
    await api('DELETE', path);
    const sockets = [anybody, await dial({ 'x-sandbar-key': keys.full }), await dial({ 'x-sandbar-key': bySession })];
    for (const { readyState } of sockets) assert.equal(readyState, WebSocket.OPEN);
    await suspend();
    await until(() => sockets.every(({ readyState }) => readyState === WebSocket.CLOSED), 'they are closed');
    const upgrade = { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
    const headers = { ...upgrade, 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' };
    const { status, text } = await ports.fetchText(8001, { headers });
    assert.equal(status, 403, text);
  });
});

describe('the spend guard', () => {
  it('runs at once when an account is suspended, and stops its machines', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    const other = (await api('POST', '/v1/machines', { key: keys.other })).json.id;
    const before = signals;
    await suspend();
    assert.equal(signals, before + 1);
    await plane.reconciler.runOnce();
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'stopped');
    assert.equal((await api('GET', `/v1/machines/${other}`, { key: keys.other })).json.state, 'running');
    const { activity } = (await api('GET', `/v1/machines/${id}/activity`)).json;
    assert.deepEqual([activity[0].action, activity[0].actor], ['machine.stopped', 'system:operator']);
    await admin('resume');
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'stopped');
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
  });
});

describe('the operator', () => {
  it('sees the time of a suspension, and a second suspension keeps that time', async () => {
    const { json } = await admin('suspend');
    assert(json.suspended_at !== null && Number.isFinite(Date.parse(json.suspended_at)));
    const again = await admin('suspend', 'owner@example.test');
    assert.deepEqual([again.status, again.json.suspended_at], [200, json.suspended_at]);
    assert.deepEqual([json.deleted_at, json.is_owner], [null, false]);
  });

  it('can suspend neither the account of the owner of the service nor a deleted account nor an absent one', async () => {
    const { json } = await callAdmin<{ account_id: string }>(plane.app.config.adminSocket, '/admin/bootstrap', {
      email: 'first@example.test',
    });
    const owners = await admin('suspend', json.account_id);
    assert.deepEqual([owners.status, owners.json.code], [409, 'conflict']);
    const row = db.selectFrom('accounts').select('suspended_at').where('id', '=', json.account_id);
    assert.deepEqual(await row.execute(), [{ suspended_at: null }]);
    assert.equal((await admin('suspend', randomUUID())).status, 404);
  });
});
