// Tests that the headers in which a reverse proxy describes its client are believed only when a trusted proxy sent
// them.
import assert from 'node:assert/strict';
import { request as openRequest } from 'node:http';
import { describe, it } from 'node:test';
import { setPassword } from '../src/auth/password.ts';
import { answerOf, textOf } from './support/port-client.ts';
import { Programs } from './support/programs.ts';
import { startTestBed, TEST_ORIGIN, TEST_PASSWORD } from './support/test-bed.ts';

const rates = {
  mutating: { perSec: 1000, burst: 1000 },
  exec: { perSec: 1000, burst: 1000 },
  files: { perSec: 1000, burst: 1000 },
  signInAddress: { perSec: 1 / 3600, burst: 2 },
  signInEmail: { perSec: 1000, burst: 1000 },
  signInUnknown: { perSec: 1000, burst: 1000 },
};

/**
 * Signs in three times from one client address and once from another, both set in the X-Forwarded-For header. Returns
 * the four statuses.
 */
async function statuses(trustProxy: string): Promise<number[]> {
  const bed = await startTestBed({ config: { rates, trustProxy } });
  const body = { email: 'nobody@example.test', password: 'not this one' };
  const signIn = async (client: string) =>
    (await bed.api('POST', '/v1/auth/sign-in', { key: null, body, headers: { 'x-forwarded-for': client } })).status;
  const found: number[] = [];
  for (const client of ['203.0.113.1', '203.0.113.1', '203.0.113.1', '203.0.113.2']) found.push(await signIn(client));
  return found;
}

describe('X-Forwarded-For', () => {
  it('of a trusted proxy names the client that sign-in is limited by', async () => {
    assert.deepEqual(await statuses('127.0.0.1'), [401, 401, 429, 401]);
  });

  it('of anybody else is not believed', async () => {
    assert.deepEqual(await statuses(''), [401, 401, 429, 429]);
  });
});

/** A service on which programs of a machine listen, behind the proxies of `trustProxy`. */
async function startBehind(trustProxy: string) {
  const bed = await startTestBed({ config: { trustProxy, hstsSec: 60 } });
  await setPassword(bed.plane.app.db, bed.accountId, TEST_PASSWORD);
  const machine: string = (await bed.api('POST', '/v1/machines')).json.id;
  const programs = new Programs(bed.host);
  await programs.serve(machine, 8000, ({ headers }, response) =>
    response.end(`${headers['x-forwarded-proto']} ${headers.host}`),
  );
  const name = `8000-${machine}.localhost`;
  const visit = async (headers: Record<string, string | string[]>, path = '/') => {
    const { host, port } = bed.plane.address;
    const request = openRequest({
      host,
      port,
      path,
      agent: false,
      headers: { 'x-sandbar-key': bed.keys.full, ...headers },
    });
    request.end();
    const response = await answerOf(request);
    return { status: response.statusCode, headers: response.headers, text: await textOf(response) };
  };
  const signIn = (headers: Record<string, string>) =>
    bed.api('POST', '/v1/auth/sign-in', {
      key: null,
      headers,
      body: { email: 'owner@example.test', password: TEST_PASSWORD },
    });
  return { ...bed, machine, name, visit, signIn };
}

describe('X-Forwarded-Proto and X-Forwarded-Host', () => {
  it('of a trusted proxy say how its client addressed the service', async () => {
    const { visit, signIn, name, api, machine } = await startBehind('127.0.0.1');
    const { headers } = await signIn({ 'x-forwarded-proto': 'https' });
    const cookies = headers.getSetCookie();
    assert.deepEqual([cookies.length, cookies.every((cookie) => cookie.endsWith('; Secure'))], [2, true]);
    assert.equal(headers.get('strict-transport-security'), 'max-age=60');
    const plain = await signIn({ 'x-forwarded-proto': 'http' });
    assert.doesNotMatch(plain.headers.getSetCookie().join(), /Secure/);
    assert.equal(plain.headers.get('strict-transport-security'), null);
    // The client wrote the first item, and the proxy added the last one.
    assert.doesNotMatch((await signIn({ 'x-forwarded-proto': 'https, http' })).headers.getSetCookie().join(), /Secure/);

    assert.equal((await visit({ host: name, 'x-forwarded-proto': 'https' })).text, `https ${name}`);
    assert.equal((await visit({ host: 'inner', 'x-forwarded-host': name })).text, `http ${name}`);
    const { url } = (await api('POST', `/v1/machines/${machine}/ports/8000/token`, { body: {} })).json;
    const path = `/${new URL(url).search}`;
    const exchange = (proto: string) => visit({ host: name, 'x-sandbar-key': [], 'x-forwarded-proto': proto }, path);
    assert.match(String((await exchange('https')).headers['set-cookie']), /; Secure$/);
    assert.doesNotMatch(String((await exchange('http')).headers['set-cookie']), /Secure/);
  });

  it('of a trusted proxy do not lead from the host name of a port to the API', async () => {
    const { visit, name } = await startBehind('127.0.0.1');
    assert.equal((await visit({ host: name, 'x-forwarded-host': 'localhost' }, '/v1/images')).text, `http ${name}`);
  });

  it('of anybody else are not believed', async () => {
    const { visit, signIn, name } = await startBehind('10.0.0.0/8');
    const { headers } = await signIn({ 'x-forwarded-proto': 'https' });
    assert.doesNotMatch(headers.getSetCookie().join(), /Secure/);
    assert.equal(headers.get('strict-transport-security'), null);
    assert.equal((await visit({ host: name, 'x-forwarded-proto': 'https' })).text, `http ${name}`);
    assert.equal((await visit({ host: 'inner', 'x-forwarded-host': name })).status, 302, 'the API answers: to /docs');
  });

  it('never widen the origins that may use a session, not even those of a trusted proxy', async () => {
    const { api, session, plane } = await startBehind('127.0.0.1');
    const cookie = await session();
    const signOut = (origin: string, headers: Record<string, string>) =>
      api('POST', '/v1/auth/sign-out', { key: null, headers: { cookie, origin, ...headers } });
    const forged = { 'x-forwarded-host': 'evil.example', 'x-forwarded-proto': 'https' };
    assert.equal((await signOut('https://evil.example', forged)).status, 403);
    assert.equal((await signOut(`https://127.0.0.1:${plane.address.port}`, forged)).status, 403);
    assert.equal((await signOut(TEST_ORIGIN, {})).status, 204);
  });
});
