// Tests that any replica serves any request: the steps of each test go to different replicas. What a replica keeps in
// memory is never needed by another one.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { insertKey } from '../src/api-keys/store.ts';
import type { ControlPlane } from '../src/control-plane.ts';
import { hashDeviceCode } from '../src/device-login/codes.ts';
import { openStream } from './support/event-stream.ts';
import { patternOf } from './support/fake-host/jobs.ts';
import { FakeStdin } from './support/fake-stdin.ts';
import { FakeTerminals } from './support/fake-terminals.ts';
import { guestEntry } from './support/guest-files.ts';
import { playStream } from './support/guest-stream.ts';
import { answerOf, textOf } from './support/port-client.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { connect, refusal } from './support/terminal-client.ts';
import { type CallOptions, checkBooks, startTestBed, TEST_ORIGIN, TEST_PASSWORD } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16' } });
const { host, keys } = bed;
const [a, b] = bed.replicas as [ControlPlane, ControlPlane];
const { db } = a.app;
after(() => host.heal());
const on =
  (plane: ControlPlane) =>
  (method: string, path: string, options: CallOptions = {}) =>
    bed.api(method, path, { ...options, plane });
const [onA, onB] = [on(a), on(b)];
const newMachine = async (): Promise<string> =>
  (await onA('POST', '/v1/machines', { body: { memory_mb: 128 } })).json.id;
const machine = await newMachine();
const execs = `/v1/machines/${machine}/execs`;
const asSession = (cookie: string) => ({ key: null, headers: { cookie, origin: TEST_ORIGIN } });

describe('credentials', () => {
  it('a key that is made on one replica works on the other, and is refused there from its revocation on', async () => {
    const session = asSession(await bed.session());
    const made = (await onA('POST', '/v1/api-keys', { ...session, body: { name: 'roaming', scope: 'full' } })).json;
    assert.equal((await onB('GET', '/v1/account', { key: made.key })).status, 200);
    assert.equal((await onA('DELETE', `/v1/api-keys/${made.id}`, session)).status, 204);
    assert.equal((await onB('GET', '/v1/account', { key: made.key })).status, 401);
  });

  it('a session works on both, and ends on both', async () => {
    const session = asSession(await bed.session());
    assert.equal((await onB('GET', '/v1/account', session)).status, 200);
    assert.equal((await onB('POST', '/v1/auth/sign-out', session)).status, 204);
    assert.equal((await onA('GET', '/v1/account', session)).status, 401);
  });

  it('a password that is confirmed on one replica opens the operator’s pages on the other', async () => {
    await db.updateTable('accounts').set({ is_owner: true }).where('id', '=', bed.accountId).execute();
    const session = asSession(await bed.session());
    await sql`update sessions set confirmed_at = now() - interval '1 hour'`.execute(db);
    assert.equal((await onB('GET', '/admin/v1/hosts', session)).json.code, 'password_required');
    const body = { password: TEST_PASSWORD };
    assert.equal((await onA('POST', '/v1/auth/confirm-password', { ...session, body })).status, 204);
    assert.equal((await onB('GET', '/admin/v1/hosts', session)).status, 200);
    await db.updateTable('accounts').set({ is_owner: false }).where('id', '=', bed.accountId).execute();
  });

  it('a device login begins on one, is approved on the other and gives one key', async () => {
    const session = asSession(await bed.session());
    const code = (await onA('POST', '/v1/auth/device/code', { key: null, body: { name: 'laptop' } })).json;
    const body = { user_code: code.user_code, scope: 'read' };
    assert.equal((await onB('POST', '/v1/auth/device/approve', { ...session, body })).status, 204);
    await sql`update device_logins set polled_at = now() - interval '2 minutes'
      where device_code_hash = ${hashDeviceCode(code.device_code)}`.execute(db);
    const poll = (send: typeof onA) =>
      send('POST', '/v1/auth/device/token', { key: null, body: { device_code: code.device_code } });
    const statuses = (await Promise.all([poll(onA), poll(onB)])).map(({ status }) => status).sort();
    assert.deepEqual(statuses, [200, 400]);
  });
});

describe('what is signed by one replica is read by the other', () => {
  it('cursors', async () => {
    for (let index = 0; index < 4; index++) await newMachine();
    const seen: string[] = [];
    let query = '';
    for (let page = 0; page === 0 || query !== ''; page++) {
      const { json } = await (page % 2 ? onB : onA)('GET', `/v1/activity?page_size=2${query}`);
      seen.push(...json.activity.map(({ id }: { id: string }) => id));
      query = json.next_cursor && `&cursor=${encodeURIComponent(json.next_cursor)}`;
    }
    const { json } = await onB('GET', '/v1/activity?page_size=200');
    assert.deepEqual(
      seen,
      json.activity.map(({ id }: { id: string }) => id),
    );
    assert(seen.length >= 5);
  });

  it('tokens of ports, and the cookie that a browser gets for one', async () => {
    const programs = new Programs(host);
    await programs.serve(machine, 8000, (_request, response) => response.end('here'));
    const name = `8000-${machine}.localhost`;
    const visit = async ({ address }: ControlPlane, path: string, headers: object = {}) => {
      const request = openRequest({
        ...{ host: address.host, port: address.port, path, agent: false },
        headers: { host: name, ...headers },
      });
      request.end();
      const response = await answerOf(request);
      return { response, text: await textOf(response) };
    };
    const { url, token } = (await onA('POST', `/v1/machines/${machine}/ports/8000/token`, { body: {} })).json;
    assert.equal((await visit(b, '/', { 'x-sandbar-key': token })).text, 'here');
    const { response }: { response: IncomingMessage } = await visit(b, new URL(url).pathname + new URL(url).search);
    assert.equal(response.statusCode, 302);
    const cookie = response.headers['set-cookie']?.[0]?.split(';')[0];
    assert.equal((await visit(a, '/', { cookie })).text, 'here');
    assert.equal((await onB('PUT', `/v1/machines/${machine}/ports/8000`, { body: { access: 'public' } })).status, 200);
    assert.equal((await visit(a, '/')).text, 'here');
    assert.equal((await onA('PUT', `/v1/machines/${machine}/ports/8000`, { body: { access: 'private' } })).status, 200);
    assert.equal((await visit(b, '/')).response.statusCode, 401);
  });
});

describe('races across replicas', () => {
  it('20 creates with one idempotency key make one machine', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        (index % 2 ? onB : onA)('POST', '/v1/machines', { headers, body: { memory_mb: 128 } }),
      ),
    );
    assert.equal(new Set(answers.map(({ json }) => json.id)).size, 1);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [...Array(19).fill(200), 201]);
    await checkBooks(bed);
  });

  it('the burst of a rate limit is one for both', async () => {
    const rates = Object.fromEntries(
      ['exec', 'files', 'signInAddress', 'signInEmail', 'signInUnknown'].map((name) => [
        name,
        { perSec: 1e4, burst: 1e4 },
      ]),
    );
    const limited = await startTestBed({
      replicas: 2,
      config: { rates: { ...a.app.config.rates, ...rates, mutating: { perSec: 0.001, burst: 5 } } },
    });
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) => {
        const plane = limited.replicas[index % 2] as ControlPlane;
        return limited.api('POST', `/v1/machines/${randomUUID()}/stop`, { plane });
      }),
    );
    assert.equal(answers.filter(({ status }) => status === 404).length, 5);
    assert.equal(answers.filter(({ status }) => status === 429).length, 7);
  });

  it('of two uploads with the same If-Match, one wins', async () => {
    let etag = 'v0';
    let version = 0;
    host.guestStreams['files.write'] = (_machineId, { if_etag }: { if_etag: string }) => {
      const stream = playStream({ if_etag });
      stream.guest.resume();
      stream.guest.once('end', () => {
        if (if_etag !== etag) {
          stream.fail(new ServiceError('conflict', 'The file has changed.'));
          return;
        }
        etag = `v${++version}`;
        stream.finish({ entry: guestEntry({ size: 1 }) });
      });
      return stream;
    };
    const put = (send: typeof onA) =>
      send('PUT', `/v1/machines/${machine}/files/content?path=/root/hello.txt`, {
        rawBody: 'x',
        headers: { 'if-match': '"v0"' },
      });
    const answers = await Promise.all([put(onA), put(onB)]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409]);
  });

  it('an operation that began on one is joined on the other', async () => {
    const id = await newMachine();
    const ensures = host.callsOf('ensure');
    host.fault('ensure', 'hang', 1);
    const first = onA('POST', `/v1/machines/${id}/stop`);
    await until(() => host.callsOf('ensure') > ensures, 'the stop is under way');
    const second = onB('POST', `/v1/machines/${id}/stop`);
    assert.equal((await onB('GET', `/v1/machines/${id}`)).json.operation?.kind, 'stop');
    host.heal();
    assert.deepEqual([(await first).status, (await second).status], [200, 200]);
    assert.equal(host.callsOf('ensure'), ensures + 1, 'the host was asked once');
  });
});

describe('jobs', () => {
  it('stdin is written through both in order, and a repetition through the other writes nothing twice', async () => {
    const stdin = new FakeStdin();
    host.guestCalls['jobs.stdin'] = (_machineId, params) => stdin.take(params);
    const job = (await onA('POST', execs, { body: { command: 'sleep', stdin_open: true } })).json.id;
    const bytes = patternOf(3000);
    const put = (send: typeof onA, offset: number, end: number) =>
      send('PUT', `${execs}/${job}/stdin?offset=${offset}`, { rawBody: new Uint8Array(bytes.subarray(offset, end)) });
    assert.equal((await put(onA, 0, 1000)).json.next_offset, 1000);
    assert.equal((await put(onB, 0, 2000)).json.next_offset, 2000);
    await Promise.all([put(onA, 2000, 3000), put(onB, 2000, 3000)]);
    assert.deepEqual(stdin.bytes, bytes);
    host.endJob(machine, job);
  });

  it('a wait on one ends when the job is cancelled through the other', async () => {
    const job = (await onB('POST', execs, { body: { command: 'sleep' } })).json.id;
    const gets = host.callsOf('getJob');
    const waiting = onA('GET', `${execs}/${job}?wait_ms=60000`);
    await until(() => host.callsOf('getJob') > gets, 'the wait has begun');
    assert.equal((await onB('POST', `${execs}/${job}/cancel`)).status, 200);
    host.endJob(machine, job, { status: 'canceled', exit_code: null, signal: 'SIGTERM' });
    assert.equal((await waiting).json.status, 'canceled');
    await until(async () => (await onB('GET', `${execs}/${job}`)).json.status === 'canceled', 'both know');
  });

  it('an event stream goes on at the other with Last-Event-ID', async () => {
    const job = (await onA('POST', execs, { body: { command: 'sleep' } })).json.id;
    host.append(machine, job, Buffer.from('one '));
    const headers = { authorization: `Bearer ${keys.full}` };
    const first = await openStream(a, `${execs}/${job}/output`, headers);
    await until(() => first.events.length > 0, 'the first stream has sent');
    first.close();
    host.append(machine, job, Buffer.from('two'));
    host.endJob(machine, job);
    const last = String(first.events.at(-1)?.id);
    const second = await openStream(b, `${execs}/${job}/output`, { ...headers, 'last-event-id': last });
    await second.ended;
    assert.equal([...first.events, ...second.events].map(({ data }) => data).join(''), 'one two');
  });

  it('of one exec_id is started once', async () => {
    const body = { command: 'sleep', exec_id: randomUUID() };
    const answers = await Promise.all([onA('POST', execs, { body }), onB('POST', execs, { body })]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 409]);
    assert.equal((await onB('GET', `${execs}?page_size=1`)).json.execs[0].id, body.exec_id);
    host.endJob(machine, body.exec_id);
  });
});

describe('terminals', () => {
  const terminals = new FakeTerminals(host);
  const session = async (send: typeof onA, body: object = {}, key = keys.full) =>
    (await send('POST', `/v1/machines/${machine}/terminal-session`, { body, key })).json;

  it('a ticket of one is spent once at the other, and a terminal is joined through both', async () => {
    const { ticket, terminal_id } = await session(onA);
    const first = await connect(b, machine, ticket);
    assert.equal((await refusal(a, machine, ticket)).status, 401);
    const second = await connect(a, machine, (await session(onB, { terminal_id })).ticket);
    await terminals.all.get(terminal_id)?.print('both');
    await Promise.all([first.sees('both'), second.sees('both')]);
    assert.equal((await onA('GET', `/v1/machines/${machine}/terminals`)).json.terminals[0].connections, 2);
    first.socket.terminate();
    second.socket.terminate();
  });

  it('a connection ends when its key is revoked through the other', async () => {
    const key = await insertKey(db, bed.accountId, 'full', 'of a terminal');
    const list = (await onB('GET', '/v1/api-keys', asSession(await bed.session()))).json.api_keys;
    const { id } = list.find(({ name }: { name: string }) => name === 'of a terminal');
    const client = await connect(a, machine, (await session(onB, {}, key)).ticket);
    assert.equal((await onB('DELETE', `/v1/api-keys/${id}`, asSession(await bed.session()))).status, 204);
    assert.equal((await client.ends()).code, 4401);
  });
});

describe('machines', () => {
  it('that are changed through one are read through the other at once', async () => {
    const id = await newMachine();
    await onA('PATCH', `/v1/machines/${id}`, { body: { name: 'renamed' } });
    assert.equal((await onB('GET', `/v1/machines/${id}`)).json.name, 'renamed');
    await onB('DELETE', `/v1/machines/${id}`);
    assert.equal((await onA('GET', `/v1/machines/${id}`)).json.state, 'destroyed');
    assert.deepEqual((await onA('GET', '/v1/quotas')).json, (await onB('GET', '/v1/quotas')).json);
  });
});
