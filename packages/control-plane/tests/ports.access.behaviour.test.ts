// Tests who reaches a port of a machine, and that no credential of the service reaches a machine.
import assert from 'node:assert/strict';
import { type IncomingHttpHeaders, request as openRequest } from 'node:http';
import { describe, it } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { insertKey } from '../src/api-keys/store.ts';
import { portTokenSecret, writePortToken } from '../src/ports/token.ts';
import { Programs } from './support/programs.ts';
import { startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, plane, keys } = bed;
const programs = new Programs(host);
const newMachine = async (key = keys.full): Promise<string> => (await api('POST', '/v1/machines', { key })).json.id;
const machine = await newMachine();
const other = await newMachine(keys.other);

/** Answers with the request's own head, as JSON. */
const echo = async (machineId: string, port: number) =>
  programs.serve(machineId, port, ({ method, url, rawHeaders }, response) => {
    response.end(JSON.stringify({ method, url, headers: rawHeaders }));
  });
await echo(machine, 8000);
await echo(machine, 8001);
await echo(other, 8000);

type Answer = { status: number; headers: IncomingHttpHeaders; text: string; json: () => Record<string, unknown> };
type Options = { path?: string; method?: string; headers?: Record<string, string | string[]>; body?: string };
const hostOf = (machineId: string, port: number) => `${port}-${machineId}.localhost:7070`;

/** Sends a request to the service with the host name of a port. */
function visit(machineId: string, port: number, { path = '/', method = 'GET', headers = {}, body }: Options = {}) {
  return send(hostOf(machineId, port), { path, method, headers, ...(body === undefined ? {} : { body }) });
}

function send(hostName: string, { path = '/', method = 'GET', headers = {}, body }: Options): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const { host: address, port } = plane.address;
  const request = openRequest({
    host: address,
    port,
    path,
    method,
    agent: false,
    headers: { host: hostName, ...headers },
  });
  request.on('error', reject);
  request.on('response', async (response) => {
    const chunks = await response.toArray();
    const text = Buffer.concat(chunks).toString();
    resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json: () => JSON.parse(text) });
  });
  request.end(body);
  return promise;
}

const seen = (answer: Answer, name: string): string[] => {
  const raw = answer.json().headers as string[];
  return raw.flatMap((text, index) => (index % 2 === 0 && text.toLowerCase() === name ? [raw[index + 1] ?? ''] : []));
};
const tokenFor = async (machineId: string, port: number, body: object = {}) =>
  (await api('POST', `/v1/machines/${machineId}/ports/${port}/token`, { body })).json as { token: string; url: string };
const setAccess = (port: number, access: string) =>
  api('PUT', `/v1/machines/${machine}/ports/${port}`, { body: { access } });

describe('a private port', () => {
  it('is 401 without a credential, exactly as a machine that does not exist', async () => {
    const [there, absent] = await Promise.all([visit(machine, 8000), visit(uuidv7(), 8000)]);
    assert.equal(there.status, 401);
    assert.equal(there.text, absent.text);
    assert.equal(absent.status, 401);
    assert.equal(there.headers['www-authenticate'], 'Bearer realm="sandbar"');
  });

  it('is 404 for another account, exactly as a machine that does not exist', async () => {
    const headers = { 'x-sandbar-key': keys.full };
    const [foreign, absent] = await Promise.all([visit(other, 8000, { headers }), visit(uuidv7(), 8000, { headers })]);
    assert.equal(foreign.status, 404);
    assert.equal(absent.status, 404);
    assert.equal(foreign.text, absent.text);
  });

  for (const name of ['x-sandbar-key', 'authorization']) {
    it(`opens with an API key or a session in ${name}, which does not reach the machine`, async () => {
      const [, session = ''] = /sandbar_session=([^;]+)/.exec(await bed.session()) ?? [];
      for (const credential of [keys.full, decodeURIComponent(session), session]) {
        const value = name === 'authorization' ? `Bearer ${credential}` : credential;
        const answer = await visit(machine, 8000, { headers: { [name]: value } });
        assert.equal(answer.status, 200, answer.text);
        assert.deepEqual(seen(answer, name), []);
      }
    });
  }

  it('passes an Authorization on that is for the program', async () => {
    for (const value of ['Basic dXNlcjpwYXNz', 'Bearer a.token.of.the.program']) {
      const headers = { 'x-sandbar-key': keys.full, authorization: value };
      assert.deepEqual(seen(await visit(machine, 8000, { headers }), 'authorization'), [value]);
      assert.equal((await visit(machine, 8000, { headers: { authorization: value } })).status, 401);
    }
  });

  it('refuses credentials that are malformed, unknown or revoked', async () => {
    const revoked = await insertKey(plane.app.db, bed.accountId, 'full', 'revoked', new Date(0));
    for (const value of ['', 'x', `sbr_${'0'.repeat(43)}`, revoked, 'sbp_x.y', 'a;sandbar_session=b']) {
      const answer = await visit(machine, 8000, { headers: { 'x-sandbar-key': value } });
      assert.equal(answer.status, 401, value);
    }
  });

  it('lets a key of scope read only read', async () => {
    const headers = { 'x-sandbar-key': keys.read };
    for (const method of ['GET', 'HEAD']) assert.equal((await visit(machine, 8000, { method, headers })).status, 200);
    for (const method of ['POST', 'DELETE', 'OPTIONS']) {
      assert.equal((await visit(machine, 8000, { method, headers })).status, 403);
    }
  });
});

describe('a public port', () => {
  it('is open to everybody until it is private again, and no other port is', async () => {
    const answer = await setAccess(8001, 'public');
    assert.equal(answer.json.access, 'public');
    assert.equal((await setAccess(8001, 'public')).status, 200);
    assert.equal((await visit(machine, 8001)).status, 200);
    assert.equal((await visit(machine, 8000)).status, 401);
    const { ports } = (await api('GET', `/v1/machines/${machine}/ports`)).json;
    assert.deepEqual(
      ports.map(({ port, access }: { port: number; access: string }) => [port, access]),
      [
        [8000, 'private'],
        [8001, 'public'],
      ],
    );
    assert.equal((await api('DELETE', `/v1/machines/${machine}/ports/8001`)).status, 204);
    assert.equal((await visit(machine, 8001)).status, 401);
  });

  it('never shows the machine a credential of the service', async () => {
    await setAccess(8001, 'public');
    const cookie = await bed.session();
    const { token } = await tokenFor(machine, 8001);
    for (const authorization of [`Bearer ${keys.full}`, `Bearer ${keys.other}`, `bearer  ${token}`]) {
      const answer = await visit(machine, 8001, {
        headers: { authorization, 'x-sandbar-key': keys.full, cookie: `a=1; ${cookie}; sandbar_port=${token}; b=2` },
      });
      assert.equal(answer.status, 200);
      assert.deepEqual(seen(answer, 'authorization'), []);
      assert.deepEqual(seen(answer, 'x-sandbar-key'), []);
      assert.deepEqual(seen(answer, 'cookie'), ['a=1; b=2']);
    }
    await setAccess(8001, 'private');
  });

  it('of which a machine has at most 100', async () => {
    const id = await newMachine();
    const put = (port: number, access = 'public') =>
      api('PUT', `/v1/machines/${id}/ports/${port}`, { body: { access } });
    for (let port = 1; port <= 100; port++) assert.equal((await put(port)).status, 200);
    assert.equal((await put(101)).status, 409);
    assert.equal((await put(100)).status, 200);
    assert.equal((await put(7, 'private')).status, 200);
    assert.equal((await put(101)).status, 200);
  });
});

describe('a token', () => {
  it('in the query becomes a cookie of the host name alone, and the address is cleaned', async () => {
    const { url } = await tokenFor(machine, 8000);
    const { search } = new URL(url);
    const answer = await visit(machine, 8000, { path: `/a%2Fb${search}&x=%41&y` });
    assert.equal(answer.status, 302);
    assert.equal(answer.headers.location, '/a%2Fb?x=%41&y');
    const [cookie = ''] = answer.headers['set-cookie'] ?? [];
    assert.match(cookie, /^sandbar_port=sbp_[^;]+; Max-Age=3\d{3}; Path=\/; HttpOnly; SameSite=Lax$/);
    const headers = { cookie: cookie.split(';')[0] ?? '' };
    const opened = await visit(machine, 8000, { path: '/a', method: 'POST', headers });
    assert.equal(opened.status, 200);
    assert.deepEqual(seen(opened, 'cookie'), []);
    assert.equal((await visit(machine, 8001, { headers })).status, 401);
  });

  it('does not send the browser to another host', async () => {
    const { search } = new URL((await tokenFor(machine, 8000)).url);
    for (const path of ['//evil.test/x', '/\\evil.test', '///evil.test']) {
      const { location = '' } = (await visit(machine, 8000, { path: `${path}${search}` })).headers;
      assert.equal(new URL(location, `http://${hostOf(machine, 8000)}`).host, hostOf(machine, 8000), location);
    }
  });

  it('opens the port for programs in X-Sandbar-Key, and in the query of requests that follow no redirect', async () => {
    const { token } = await tokenFor(machine, 8000);
    assert.equal((await visit(machine, 8000, { headers: { 'x-sandbar-key': token } })).status, 200);
    const posted = await visit(machine, 8000, { path: `/p?sandbar_token=${token}&z=1`, method: 'POST', body: 'x' });
    assert.equal(posted.status, 200);
    assert.equal(posted.json().url, '/p?z=1');
  });

  it('is refused for another port or machine, after its time, and with a changed byte', async () => {
    const { token } = await tokenFor(machine, 8000);
    const secret = portTokenSecret(plane.app.config.secret);
    const content = { machineId: machine, port: 8000, accountId: bed.accountId, keyId: undefined };
    const expired = writePortToken({ ...content, expiresAt: Date.now() - 1 }, secret);
    const foreign = writePortToken({ ...content, accountId: uuidv7(), expiresAt: Date.now() + 60_000 }, secret);
    const changed = `${token.slice(0, 20)}${token[20] === 'A' ? 'B' : 'A'}${token.slice(21)}`;
    const tries: [number, string][] = [
      [8001, token],
      [8000, expired],
      [8000, foreign],
      [8000, changed],
    ];
    for (const [port, value] of tries) {
      assert.equal((await visit(machine, port, { headers: { 'x-sandbar-key': value } })).status, 401);
      assert.equal((await visit(machine, port, { path: `/?sandbar_token=${value}` })).status, 401);
      assert.equal((await visit(machine, port, { headers: { cookie: `sandbar_port=${value}` } })).status, 401);
    }
    assert.equal((await visit(other, 8000, { headers: { 'x-sandbar-key': token } })).status, 401);
  });

  it('still opens the port beside a cookie that a page of another machine has set for a shared domain', async () => {
    const { token } = await tokenFor(machine, 8000);
    const headers = { cookie: `sandbar_port=sbp_forged.x; sandbar_port=${token}` };
    assert.equal((await visit(machine, 8000, { headers })).status, 200);
  });

  it('ends with the API key that made it', async () => {
    const key = await insertKey(plane.app.db, bed.accountId, 'full', 'short-lived');
    const made = await api('POST', `/v1/machines/${machine}/ports/8000/token`, { key });
    const headers = { 'x-sandbar-key': made.json.token };
    assert.equal((await visit(machine, 8000, { headers })).status, 200);
    await plane.app.db.deleteFrom('api_keys').where('name', '=', 'short-lived').execute();
    assert.equal((await visit(machine, 8000, { headers })).status, 401);
  });
});

describe('the endpoints of ports', () => {
  it('answer 404 for an absent machine, a foreign one and a port that does not exist', async () => {
    const body = { access: 'public' };
    for (const path of [
      `${other}/ports/8000`,
      `${uuidv7()}/ports/8000`,
      `${machine}/ports/0`,
      `${machine}/ports/65536`,
    ]) {
      assert.equal((await api('PUT', `/v1/machines/${path}`, { body })).status, 404, path);
      assert.equal((await api('DELETE', `/v1/machines/${path}`)).status, 404, path);
      assert.equal((await api('POST', `/v1/machines/${path}/token`)).status, 404, path);
    }
    assert.equal((await api('GET', `/v1/machines/${other}/ports`)).status, 404);
    assert.equal((await api('GET', `/v1/machines/${uuidv7()}/ports`)).status, 404);
  });

  it('need scope full to change something', async () => {
    const key = keys.read;
    const path = `/v1/machines/${machine}/ports/8000`;
    assert.equal((await api('GET', `/v1/machines/${machine}/ports`, { key })).status, 200);
    assert.equal((await api('PUT', path, { key, body: { access: 'public' } })).status, 403);
    assert.equal((await api('DELETE', path, { key })).status, 403);
    assert.equal((await api('POST', `${path}/token`, { key })).status, 403);
  });

  it('do not trust what a guest says', async () => {
    const list = host.guestCalls['ports.list'];
    const entry = { port: 80, protocol: 'tcp', process: null };
    for (const ports of [[{ ...entry, port: 0 }], [{ ...entry, process: 7 }], 'x', Array(3000).fill(entry)]) {
      host.guestCalls['ports.list'] = () => ({ ports });
      assert.equal((await api('GET', `/v1/machines/${machine}/ports`)).status, 500);
    }
    host.guestCalls['ports.list'] = () => ({ ports: [entry, entry] });
    assert.equal((await api('GET', `/v1/machines/${machine}/ports`)).json.ports.length, 1);
    if (list) host.guestCalls['ports.list'] = list;
  });
});

describe('the API', () => {
  it('is not reachable at host names of ports', async () => {
    const headers = { 'x-sandbar-key': keys.full };
    const answer = await visit(machine, 8000, { path: '/v1/machines', headers });
    assert.equal(answer.json().url, '/v1/machines');
    const names = [
      `0-${machine}.localhost`,
      `65536-${machine}.localhost`,
      '8000-x.localhost',
      `x.8000-${machine}.localhost`,
    ];
    for (const name of names) {
      const refused = await send(name, { path: '/v1/machines', headers: { authorization: `Bearer ${keys.full}` } });
      assert.equal(refused.status, 404, name);
    }
    for (const name of [
      `08000-${machine}.localhost`,
      `8000-${machine}.localhost.`,
      `8000-${machine.toUpperCase()}.LOCALHOST`,
    ]) {
      const { status, text } = await send(name, { path: '/healthz', headers });
      assert(status === 404 || text.includes('"url":"/healthz"'), `${name}: ${text}`);
    }
  });

  it('refuses a change that a page of a machine makes with the dashboard cookie, and shows it nothing', async () => {
    const cookie = await bed.session();
    const origin = `http://8000-${machine}.localhost:7070`;
    const changed = await api('DELETE', `/v1/machines/${machine}`, { key: null, headers: { cookie, origin } });
    assert.equal(changed.status, 403);
    const read = await api('GET', '/v1/machines', { key: null, headers: { cookie, origin } });
    assert.equal(read.headers.get('access-control-allow-origin'), null);
    const preflight = await api('OPTIONS', '/v1/machines', {
      key: null,
      headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' },
    });
    assert.equal(preflight.headers.get('access-control-allow-origin'), null);
    assert.equal(preflight.status, 405);
    const own = { cookie, origin: TEST_ORIGIN };
    const kept = await api('PATCH', `/v1/machines/${machine}`, { key: null, headers: own, body: { name: 'kept' } });
    assert.equal(kept.status, 200);
  });

  it('gives browsers cookies for its own host name only', async () => {
    const answer = await api('POST', '/v1/auth/sign-in', {
      key: null,
      body: { email: 'owner@example.test', password: 'the password of the tests' },
    });
    assert(answer.headers.getSetCookie().length > 0);
    for (const cookie of answer.headers.getSetCookie()) assert.doesNotMatch(cookie, /domain=/i);
  });
});
