// Tests of API keys as the dashboard manages them, on real PostgreSQL with two replicas.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { insertKey, touchKey } from '../src/api-keys/store.ts';
import { setPassword } from '../src/auth/password.ts';
import { until } from './support/postgres.ts';
import { cookieOf, startTestBed, TEST_ORIGIN, TEST_PASSWORD } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2 });
const { db } = bed.plane.app;
const [, second] = bed.replicas;
const cookie = await bed.session();

const call = (method: string, path: string, body?: unknown, as = cookie) =>
  bed.api(method, path, { key: null, body, headers: { cookie: as, origin: TEST_ORIGIN } });
const make = (fields: object = {}) => call('POST', '/v1/api-keys', { name: 'ci', scope: 'full', ...fields });
const use = (key: string, plane = bed.plane) => bed.api('GET', '/v1/account', { key, plane });

describe('api keys', () => {
  test('only a session manages them', async () => {
    const body = { name: 'ci', scope: 'full' };
    for (const key of [bed.keys.full, bed.keys.read]) {
      assert.equal((await bed.api('GET', '/v1/api-keys', { key })).status, 403);
      assert.equal((await bed.api('POST', '/v1/api-keys', { key, body })).status, 403);
      const path = '/v1/api-keys/019b0000-0000-7000-8000-000000000001';
      assert.equal((await bed.api('DELETE', path, { key })).status, 403);
    }
    assert.equal((await bed.api('GET', '/v1/api-keys', { key: null })).status, 401);
  });

  test('each refusal says what to send instead, and that works', async () => {
    const body = { name: 'ci', scope: 'full' };
    const withKey = await bed.api('POST', '/v1/api-keys', { body });
    assert.equal(
      withKey.json.detail,
      'This operation needs a dashboard session, not an API key: sign in with POST /v1/auth/sign-in, then send the cookie of ' +
        `its answer and the header Origin: ${TEST_ORIGIN} instead of Authorization. Or ask the operator of this service, who ` +
        'makes keys with `sandbar admin account key`.',
    );
    const withNothing = await bed.api('POST', '/v1/api-keys', { key: null, body });
    assert.equal(withNothing.status, 401);
    assert.match(withNothing.json.detail, /needs a dashboard session: sign in with POST \/v1\/auth\/sign-in/);
    const withoutOrigin = await bed.api('POST', '/v1/api-keys', { key: null, body, headers: { cookie } });
    assert.equal(withoutOrigin.status, 403);
    assert.equal(
      withoutOrigin.json.detail,
      `A change with a dashboard session needs the header Origin: ${TEST_ORIGIN}. Browsers send it; other programs must add it.`,
    );
    const headers = { cookie, origin: TEST_ORIGIN };
    assert.equal((await bed.api('POST', '/v1/api-keys', { key: null, body, headers })).status, 201);
    const signOut = await bed.api('POST', '/v1/auth/sign-out');
    assert.match(signOut.json.detail, /^This operation needs a dashboard session.* instead of Authorization\.$/);
  });

  test('a key is shown once and works with its scope', async () => {
    const made = await make({ name: 'a name', scope: 'read' });
    assert.equal(made.status, 201, made.text);
    assert.match(made.json.key, /^sbr_[0-9A-Za-z]{43}$/);
    assert.equal(made.json.prefix, made.json.key.slice(0, 12));
    assert.deepEqual([made.json.last_used_at, made.json.expires_at], [null, null]);
    assert.equal((await use(made.json.key)).json.id, bed.accountId);
    const refused = await bed.api('POST', '/v1/machines', { key: made.json.key, body: {} });
    assert.equal(refused.json.code, 'forbidden');
    const list = await call('GET', '/v1/api-keys');
    assert.ok(!list.text.includes(made.json.key));
    const { key: _key, ...record } = made.json;
    assert.deepEqual({ ...list.json.api_keys[0], last_used_at: null }, record);
  });

  test('bad input is 400', async () => {
    for (const fields of [
      { name: '' },
      { name: 'x'.repeat(256) },
      { scope: 'admin' },
      { expires_at: 'tomorrow' },
      { expires_at: '2020-01-01T00:00:00Z' },
      { expires_at: '2099-01-01' },
      { expires_at: null },
      { account_id: bed.accountId },
    ]) {
      assert.equal((await make(fields)).status, 400, JSON.stringify(fields));
    }
  });

  test('ends at its expiry', async () => {
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    const made = await make({ expires_at });
    assert.equal(made.json.expires_at, expires_at);
    assert.equal((await use(made.json.key)).status, 200);
    await sql`update api_keys set expires_at = now() - interval '1 millisecond' where id = ${made.json.id}`.execute(db);
    assert.equal((await use(made.json.key)).status, 401);
  });

  test('revoked, it is refused on the other replica at once', async () => {
    const { json } = await make();
    assert.equal((await use(json.key, second)).status, 200);
    assert.equal((await call('DELETE', `/v1/api-keys/${json.id}`)).status, 204);
    assert.equal((await use(json.key, second)).status, 401);
    assert.equal((await use(json.key)).status, 401);
    assert.equal((await call('DELETE', `/v1/api-keys/${json.id}`)).status, 404);
  });

  test("another account's key is as absent as one that is not there", async () => {
    const { id, account_id } = await db
      .selectFrom('api_keys')
      .select(['id', 'account_id'])
      .where('name', '=', 'other')
      .executeTakeFirstOrThrow();
    const foreign = await call('DELETE', `/v1/api-keys/${id}`);
    const absent = await call('DELETE', '/v1/api-keys/019b0000-0000-7000-8000-000000000001');
    const malformed = await call('DELETE', '/v1/api-keys/x');
    assert.deepEqual([foreign.status, absent.status, malformed.status], [404, 404, 404]);
    assert.deepEqual(foreign.json, absent.json);
    assert.equal((await use(bed.keys.other)).status, 200);
    await setPassword(db, account_id, TEST_PASSWORD);
    const body = { email: 'other@example.test', password: TEST_PASSWORD };
    const theirs = cookieOf((await bed.api('POST', '/v1/auth/sign-in', { key: null, body })).headers);
    const list = await call('GET', '/v1/api-keys', undefined, theirs);
    assert.deepEqual(
      list.json.api_keys.map(({ id: theirId }: { id: string }) => theirId),
      [id],
    );
  });

  test('the last use is written at most once a minute', async () => {
    const { json } = await make();
    const lastUse = async () => {
      const row = await db
        .selectFrom('api_keys')
        .select('last_used_at')
        .where('id', '=', json.id)
        .executeTakeFirstOrThrow();
      return row.last_used_at?.getTime() ?? null;
    };
    await use(json.key);
    await until(async () => (await lastUse()) !== null, 'the first use is written');
    const setBack = (seconds: number) =>
      sql`update api_keys set last_used_at = now() - ${seconds} * interval '1 second' where id = ${json.id}`.execute(
        db,
      );
    await setBack(50);
    const recent = await lastUse();
    for (let round = 0; round < 5; round++) await use(json.key, second);
    assert.equal(await lastUse(), recent);
    // Acts like a second replica that also wants to record the key's use. The statement must change nothing, because
    // the recorded time is less than a minute old.
    await touchKey(db, json.id);
    assert.equal(await lastUse(), recent);
    await setBack(61);
    const old = await lastUse();
    await use(json.key, second);
    await until(async () => (await lastUse()) !== old, 'a use after a minute is written');
  });

  test('the list is newest first and pages', async () => {
    const all = (await call('GET', '/v1/api-keys')).json;
    assert.equal(all.next_cursor, undefined);
    const ids: string[] = [];
    let cursor = '';
    do {
      const page = await call('GET', `/v1/api-keys?page_size=2${cursor && `&cursor=${cursor}`}`);
      ids.push(...page.json.api_keys.map(({ id }: { id: string }) => id));
      cursor = page.json.next_cursor;
    } while (cursor);
    assert.deepEqual(
      ids,
      all.api_keys.map(({ id }: { id: string }) => id),
    );
    const times = all.api_keys.map(({ created_at }: { created_at: string }) => created_at);
    assert.deepEqual(times, [...times].sort().reverse());
  });

  test('an account has at most 100, also when asked for at once', async () => {
    const { count } = await db
      .selectFrom('api_keys')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('account_id', '=', bed.accountId)
      .executeTakeFirstOrThrow();
    for (let made = count; made < 98; made++) await insertKey(db, bed.accountId, 'read', 'filler');
    const statuses = (await Promise.all(Array.from({ length: 5 }, () => make()))).map(({ status }) => status);
    assert.deepEqual(statuses.sort(), [201, 201, 409, 409, 409]);
  });
});
