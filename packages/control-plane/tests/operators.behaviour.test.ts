// Tests of who is an operator, and of when the operator's routes ask for the password again. That every such route
// refuses other credentials is tested by authorisation.behaviour.test.ts.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { DEFAULT_RATES, readConfig } from '../src/config.ts';
import { callAdmin } from './support/admin.ts';
import { startTestBed, TEST_ORIGIN, TEST_PASSWORD } from './support/test-bed.ts';

const [bed, closed, slow] = await Promise.all([
  startTestBed(),
  startTestBed({ config: { adminHttp: false } }),
  startTestBed({ config: { rates: { ...DEFAULT_RATES, signInEmail: { perSec: 0.001, burst: 3 } } } }),
]);
const { api, plane, keys, accountId } = bed;
const { db } = plane.app;
const cookie = await bed.session();
const call = (method: string, path: string, body?: object) =>
  api(method, path, { key: null, headers: { cookie, origin: TEST_ORIGIN }, ...(body ? { body } : {}) });
const setOwner = (isOwner: boolean) =>
  db.updateTable('accounts').set({ is_owner: isOwner }).where('id', '=', accountId).execute();
const setOperator = (account: string, is_operator: boolean) =>
  callAdmin(plane.app.config.adminSocket, `/admin/accounts/${account}/operator`, { is_operator });
const expectRefusal = (answer: { status: number; json: { code?: unknown } }, status: number, code: string) =>
  assert.deepEqual([answer.status, answer.json.code], [status, code]);

describe('an operator', () => {
  it('is told to the dashboard by the account, and to nobody else', async () => {
    assert.equal((await api('GET', '/v1/account')).json.is_operator, false);
    await setOwner(true);
    assert.equal((await api('GET', '/v1/account')).json.is_operator, true);
    assert.equal((await api('GET', '/v1/account', { key: keys.other })).json.is_operator, false);
  });

  it('needs a session: a key is 403 and the answer names the way that a key has', async () => {
    const answer = await api('GET', '/admin/v1/accounts');
    expectRefusal(answer, 403, 'forbidden');
    assert.match(answer.json.detail, /not an API key.*sandbar admin/);
  });

  it('is the first account, which cannot lose it', async () => {
    expectRefusal(await setOperator(accountId, false), 409, 'conflict');
    assert.equal((await call('GET', '/admin/v1/accounts')).status, 200);
    assert.equal((await call('GET', `/admin/v1/accounts/${accountId}`)).json.is_operator, true);
  });

  it('is every account that the owner names, until the owner takes it back', async () => {
    await setOwner(false);
    expectRefusal(await call('GET', '/admin/v1/accounts'), 403, 'forbidden');
    assert.equal((await setOperator('owner@example.test', true)).json.is_operator, true);
    assert.equal((await call('GET', '/admin/v1/accounts')).status, 200);
    assert.equal((await api('GET', '/v1/account')).json.is_operator, true);
    assert.equal((await setOperator(accountId, false)).json.is_operator, false);
    expectRefusal(await call('GET', '/admin/v1/accounts'), 403, 'forbidden');
    expectRefusal(await setOperator(randomUUID(), true), 404, 'not_found');
    await setOwner(true);
  });

  it('is named on the admin socket only', async () => {
    expectRefusal(
      await call('POST', `/admin/v1/accounts/${accountId}/operator`, { is_operator: true }),
      404,
      'not_found',
    );
  });

  it('is nobody any more when the account is deleted', async () => {
    const { json } = await callAdmin(plane.app.config.adminSocket, '/admin/accounts', { email: 'gone@example.test' });
    const id = String(json.account_id);
    await setOperator(id, true);
    const deleted = await callAdmin(plane.app.config.adminSocket, `/admin/accounts/${id}/delete`, {});
    assert.equal(deleted.json.is_operator, false);
    expectRefusal(await setOperator(id, true), 409, 'conflict');
  });

  it('does not exist over HTTP with SANDBAR_ADMIN_HTTP=0', async () => {
    await closed.plane.app.db
      .updateTable('accounts')
      .set({ is_owner: true })
      .where('id', '=', closed.accountId)
      .execute();
    const headers = { cookie: await closed.session(), origin: TEST_ORIGIN };
    for (const [method, path] of [
      ['GET', 'accounts'],
      ['POST', 'accounts'],
      ['GET', 'hosts'],
      ['GET', 'audit'],
    ] as const) {
      const answer = await closed.api(method, `/admin/v1/${path}`, { key: null, headers });
      expectRefusal(answer, 404, 'not_found');
    }
    assert.equal((await closed.api('GET', '/v1/account')).json.is_operator, false);
    const { status } = await callAdmin(closed.plane.app.config.adminSocket, '/admin/accounts');
    assert.equal(status, 200);
  });
});

describe('SANDBAR_ADMIN_HTTP', () => {
  const read = (value?: string) => {
    const env = { SANDBAR_HOME: '/tmp/x', SANDBAR_DATABASE_URL: 'postgres://x/y', SANDBAR_SECRET: 'x'.repeat(32) };
    return readConfig({ ...env, ...(value === undefined ? {} : { SANDBAR_ADMIN_HTTP: value }) }, false).adminHttp;
  };

  it('is 0 or 1, and 1 by default', () => {
    assert.deepEqual([read(), read('1'), read('0')], [true, true, false]);
    assert.throws(() => read('no'), /SANDBAR_ADMIN_HTTP must be 0 or 1, not "no"/);
  });
});

describe('the password', () => {
  const age = (interval: string) => sql`update sessions set confirmed_at = now() - ${interval}::interval`.execute(db);
  const confirm = (password: string, headers = {}) =>
    api('POST', '/v1/auth/confirm-password', {
      key: null,
      body: { password },
      headers: { cookie, origin: TEST_ORIGIN, ...headers },
    });
  const accounts = () => call('GET', '/admin/v1/accounts');

  it('is asked for again 15 minutes after the sign-in, for reads and for changes', async () => {
    await age('14 minutes 50 seconds');
    assert.equal((await accounts()).status, 200);
    await age('15 minutes');
    const read = await accounts();
    expectRefusal(read, 403, 'password_required');
    assert.match(read.json.detail, /confirm-password/);
    const change = await call('POST', '/admin/v1/accounts', { email: 'unmade@example.test' });
    expectRefusal(change, 403, 'password_required');
    assert.equal((await call('GET', '/v1/account')).status, 200);
  });

  it('allows the requests of the operator again when it is right, in this session only', async () => {
    const other = { cookie: await bed.session(), origin: TEST_ORIGIN };
    await age('1 hour');
    const wrong = await confirm('not the password');
    expectRefusal(wrong, 400, 'validation_error');
    assert.equal(wrong.json.detail, 'password is not the password of this account.');
    expectRefusal(await accounts(), 403, 'password_required');
    const right = await confirm(TEST_PASSWORD);
    assert.deepEqual([right.status, right.text], [204, '']);
    assert.equal((await accounts()).status, 200);
    expectRefusal(await api('GET', '/admin/v1/accounts', { key: null, headers: other }), 403, 'password_required');
  });

  it('counts from the check, and not from the last request', async () => {
    await age('14 minutes 50 seconds');
    assert.equal((await accounts()).status, 200);
    const { rows } = await sql<{ old: boolean }>`
      select bool_and(confirmed_at < now() - interval '14 minutes') as old from sessions`.execute(db);
    assert.equal(rows[0]?.old, true);
  });

  it('is checked for a session and from our own pages only', async () => {
    expectRefusal(await confirm(TEST_PASSWORD, { origin: 'https://evil.test' }), 403, 'forbidden');
    const byKey = await api('POST', '/v1/auth/confirm-password', { body: { password: TEST_PASSWORD } });
    expectRefusal(byKey, 403, 'forbidden');
  });

  it('of an account without one cannot be checked', async () => {
    const stored = await db.selectFrom('credentials').selectAll().where('account_id', '=', accountId).execute();
    await db.deleteFrom('credentials').where('account_id', '=', accountId).execute();
    const answer = await confirm(TEST_PASSWORD);
    await age('15 minutes');
    const refused = await accounts();
    await db.insertInto('credentials').values(stored).execute();
    expectRefusal(refused, 403, 'sign_in_required');
    expectRefusal(answer, 409, 'conflict');
    assert.match(answer.json.detail, /Sign in again with GET/);
    assert.equal((await confirm(TEST_PASSWORD)).status, 204);
  });

  it('can be guessed only a few times in a session, whatever the address', async () => {
    const headers = { cookie: await slow.session(), origin: TEST_ORIGIN };
    const guess = () =>
      slow.api('POST', '/v1/auth/confirm-password', { key: null, headers, body: { password: 'a guess' } });
    for (let index = 0; index < 3; index++) expectRefusal(await guess(), 400, 'validation_error');
    const refused = await guess();
    expectRefusal(refused, 429, 'rate_limited');
    assert(Number(refused.headers.get('retry-after')) > 0);
    const body = { current_password: 'a guess', new_password: 'another password' };
    const change = await slow.api('POST', '/v1/auth/change-password', { key: null, headers, body });
    expectRefusal(change, 429, 'rate_limited');
  });
});
