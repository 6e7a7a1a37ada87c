// Tests of the device login, by which a program gets an API key, on real PostgreSQL with two replicas.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { resumeAccount, suspendAccount } from '../src/accounts/status.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { setPassword } from '../src/auth/password.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { hashDeviceCode } from '../src/device-login/codes.ts';
import { pollLogin } from '../src/device-login/poll.ts';
import { sweepDeviceLogins } from '../src/device-login/store.ts';
import { runUntilDeath } from './support/dying.ts';
import { type CallOptions, cookieOf, startTestBed, TEST_ORIGIN, TEST_PASSWORD } from './support/test-bed.ts';

const PATH = '/v1/auth/device';
/** In the alphabet of user codes. No login has one of these codes, but with a chance of one in millions. */
const WRONG = ['BBBB-BBBB', 'CCCC-CCCC', 'DDDD-DDDD', 'FFFF-FFFF', 'GGGG-GGGG', 'HHHH-HHHH'];

const bed = await startTestBed({ replicas: 2 });
const { db } = bed.plane.app;
const [first, second] = bed.replicas;
assert(first && second);
const cookie = await bed.session();
const { id: otherId } = await db
  .selectFrom('accounts')
  .select('id')
  .where('email', '=', 'other@example.test')
  .executeTakeFirstOrThrow();
await setPassword(db, otherId, TEST_PASSWORD);
const otherSignIn = await bed.api('POST', '/v1/auth/sign-in', {
  key: null,
  body: { email: 'other@example.test', password: TEST_PASSWORD },
});
const otherCookie = cookieOf(otherSignIn.headers);

type Codes = { device_code: string; user_code: string };

const open = (path: string, body: object, options: CallOptions = {}) =>
  bed.api('POST', `${PATH}/${path}`, { key: null, body, ...options });
const begin = async (name = 'laptop'): Promise<Codes> => (await open('code', { name })).json;
const act = (path: string, body: object, { as = cookie, plane = first } = {}) =>
  bed.api('POST', `${PATH}/${path}`, { key: null, body, plane, headers: { cookie: as, origin: TEST_ORIGIN } });
const lookUp = (user_code: string, options = {}) => act('lookup', { user_code }, options);
const approve = (user_code: string, scope = 'full', options = {}) => act('approve', { user_code, scope }, options);
const deny = (user_code: string, options = {}) => act('deny', { user_code }, options);
const pollNow = (device_code: string, plane = first) => open('token', { device_code }, { plane });

/** Polls as if the program had waited since its last poll. */
async function poll(device_code: string, plane = first) {
  await setLogin(device_code, sql`polled_at = now() - interval '2 minutes'`);
  return pollNow(device_code, plane);
}

const setLogin = (deviceCode: string, change: ReturnType<typeof sql>) =>
  sql`update device_logins set ${change} where device_code_hash = ${hashDeviceCode(deviceCode)}`.execute(db);
const expire = (deviceCode: string) => setLogin(deviceCode, sql`expires_at = now() - interval '1 millisecond'`);
const keysNamed = (name: string) => db.selectFrom('api_keys').selectAll().where('name', '=', name).execute();
const forgetGuesses = () => sql`delete from device_guesses`.execute(db);
const told = ({ status, json }: { status: number; json: { code: string } }) => [status, json?.code];

describe('a device login', () => {
  test('begins with a long and a short code, and the page where the short one is entered', async () => {
    const { status, json, headers } = await open('code', { name: 'laptop' });
    assert.equal(status, 200);
    assert.match(json.device_code, /^sbd_[\w-]{43}$/);
    assert.match(json.user_code, /^[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}$/);
    assert.deepEqual(
      [json.verification_uri, json.verification_uri_complete, json.expires_in, json.interval],
      [`${TEST_ORIGIN}/device`, `${TEST_ORIGIN}/device?user_code=${json.user_code}`, 600, 5],
    );
    assert.equal(headers.get('cache-control'), 'no-store');
    const { rows } = await sql<{ sec: number }>`
      select extract(epoch from expires_at - created_at)::int as sec from device_logins
      where device_code_hash = ${hashDeviceCode(json.device_code)}`.execute(db);
    assert.equal(rows[0]?.sec, 600);
  });

  test('shows who asks, on every replica, in whatever way the code is typed', async () => {
    const { user_code } = await begin('a "computer" <b>');
    for (const typed of [user_code, user_code.toLowerCase(), user_code.replace('-', ''), user_code.replace('-', ' ')]) {
      const { status, json } = await lookUp(typed, { plane: second });
      assert.equal(status, 200, typed);
      assert.deepEqual([json.user_code, json.name, json.address], [user_code, 'a "computer" <b>', '127.0.0.1']);
      assert.equal(Date.parse(json.expires_at) - Date.parse(json.created_at), 600_000);
    }
  });

  for (const scope of ['read', 'full']) {
    test(`gives the program one key of scope ${scope} once a person has approved it`, async () => {
      const name = `computer of ${scope}`;
      const { device_code, user_code } = await begin(name);
      assert.deepEqual(told(await pollNow(device_code)), [400, 'authorization_pending']);
      assert.equal((await approve(user_code, scope)).status, 204);
      assert.equal((await keysNamed(name)).length, 0, 'the key is made when the program takes it');
      const taken = await poll(device_code, second);
      assert.equal(taken.status, 200, taken.text);
      assert.equal(taken.headers.get('cache-control'), 'no-store');
      assert.deepEqual([taken.json.name, taken.json.scope, taken.json.expires_at], [name, scope, null]);
      assert.equal((await bed.api('GET', '/v1/account', { key: taken.json.key })).json.id, bed.accountId);
      const created = await bed.api('POST', '/v1/machines', { key: taken.json.key });
      assert.equal(created.status, scope === 'read' ? 403 : 201);
      const headers = { cookie, origin: TEST_ORIGIN };
      const { json: list } = await bed.api('GET', '/v1/api-keys', { key: null, headers });
      assert.equal(list.api_keys[0].id, taken.json.id);
      assert.equal((await bed.api('DELETE', `/v1/api-keys/${taken.json.id}`, { key: null, headers })).status, 204);
      assert.equal((await bed.api('GET', '/v1/account', { key: taken.json.key })).status, 401);
    });
  }

  test('shows the key once: a poll after it is expired_token', async () => {
    const { device_code, user_code } = await begin('once');
    await approve(user_code);
    assert.equal((await poll(device_code)).status, 200);
    assert.deepEqual(told(await poll(device_code)), [400, 'expired_token']);
    assert.equal((await keysNamed('once')).length, 1);
  });

  test('makes one key for polls of both replicas at once', async () => {
    const { device_code, user_code } = await begin('at once');
    await approve(user_code);
    const answers = await Promise.all([1, 2, 3, 4].map((index) => pollNow(device_code, index % 2 ? first : second)));
    assert.deepEqual(answers.map(told).sort(), [
      [200, undefined],
      ...Array.from({ length: 3 }, () => [400, 'expired_token']),
    ]);
    assert.equal((await keysNamed('at once')).length, 1);
  });

  test('is not lost and makes no second key when the process dies at any step of the poll', async () => {
    const { device_code, user_code } = await begin('survivor');
    await approve(user_code);
    let taken = false;
    let deaths = 0;
    for (let step = 1; !taken; step++) {
      await setLogin(device_code, sql`polled_at = null`);
      const died = await runUntilDeath(first.app, step, async (app) => {
        await pollLogin(app, device_code);
        taken = true;
      });
      if (!died) break;
      deaths++;
      assert.equal((await keysNamed('survivor')).length, 0, `nothing is left of a death at step ${step}`);
    }
    assert(taken && deaths >= 5, `${deaths} deaths`);
    assert.equal((await keysNamed('survivor')).length, 1);
  });

  test('that is denied is access_denied for the program', async () => {
    const { device_code, user_code } = await begin('denied');
    assert.equal((await deny(user_code)).status, 204);
    assert.equal((await deny(user_code)).status, 204, 'denying again does nothing');
    assert.deepEqual(told(await pollNow(device_code)), [400, 'access_denied']);
    assert.deepEqual(told(await approve(user_code)), [409, 'conflict']);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'access_denied']);
    assert.equal((await keysNamed('denied')).length, 0);
  });

  test('is approved by one of two people, and with one scope', async () => {
    const { device_code, user_code } = await begin('contested');
    const answers = await Promise.all([
      approve(user_code, 'full', { plane: first }),
      approve(user_code, 'full', { as: otherCookie, plane: second }),
      approve(user_code, 'read', { plane: second }),
      deny(user_code, { plane: second }),
    ]);
    assert.deepEqual(answers.map(told).sort(), [
      [204, undefined],
      ...Array.from({ length: 3 }, () => [409, 'conflict']),
    ]);
    const winner = answers.findIndex(({ status }) => status === 204);
    const { json } = await pollNow(device_code);
    const [row] = await keysNamed('contested');
    assert.deepEqual(
      [row?.account_id, row?.scope, json.code],
      [
        [bed.accountId, 'full', undefined],
        [otherId, 'full', undefined],
        [bed.accountId, 'read', undefined],
        [undefined, undefined, 'access_denied'],
      ][winner],
    );
  });

  test('can be approved twice alike, and then is one key', async () => {
    const { device_code, user_code } = await begin('double click');
    const answers = await Promise.all([1, 2].map(() => approve(user_code)));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [204, 204],
    );
    await pollNow(device_code);
    assert.equal((await approve(user_code)).status, 204);
    assert.deepEqual(told(await approve(user_code, 'read')), [409, 'conflict']);
    assert.deepEqual(told(await lookUp(user_code)), [409, 'conflict']);
    assert.deepEqual(told(await poll(device_code)), [400, 'expired_token']);
    assert.equal((await keysNamed('double click')).length, 1);
  });

  test('ends after ten minutes for the person and the program, also when it was approved', async () => {
    const [late, approved] = [await begin('late'), await begin('approved')];
    await approve(approved.user_code);
    await expire(late.device_code);
    await expire(approved.device_code);
    for (const answer of [
      await lookUp(late.user_code),
      await approve(late.user_code),
      await deny(late.user_code),
      await pollNow(late.device_code),
      await pollNow(approved.device_code),
    ]) {
      assert.deepEqual(told(answer), [400, 'expired_token']);
    }
    assert.equal((await keysNamed('approved')).length, 0);
  });

  test('tells a program that polls too often to slow down, and each time for longer', async () => {
    const { device_code } = await begin();
    const polledAgo = (sec: number) => setLogin(device_code, sql`polled_at = now() - make_interval(secs => ${sec})`);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'authorization_pending']);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'slow_down']);
    await polledAgo(6);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'slow_down'], 'the pause is 10 seconds now');
    await polledAgo(15);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'authorization_pending'], 'the pause is 15 seconds now');
  });

  test('does not reach an account that is suspended or deleted meanwhile', async () => {
    const { device_code, user_code } = await begin('suspended');
    await approve(user_code, 'full', { as: otherCookie });
    const waiting = await begin();
    const change = (work: typeof suspendAccount) => inTransaction(db, (tx) => work(tx, otherId));
    await change(suspendAccount);
    for (const path of ['lookup', 'deny']) {
      const answer = await act(path, { user_code: waiting.user_code }, { as: otherCookie });
      assert.deepEqual(told(answer), [403, 'forbidden']);
    }
    assert.deepEqual(told(await approve(waiting.user_code, 'read', { as: otherCookie })), [403, 'forbidden']);
    assert.deepEqual(told(await pollNow(device_code)), [400, 'access_denied']);
    await change(resumeAccount);
    await sql`update accounts set deleted_at = now() where id = ${otherId}`.execute(db);
    assert.deepEqual(told(await poll(device_code)), [400, 'access_denied']);
    await sql`update accounts set deleted_at = null where id = ${otherId}`.execute(db);
    assert.equal((await keysNamed('suspended')).length, 0);
    assert.equal((await poll(device_code)).status, 200);
  });

  test('of an account with 100 keys is a conflict, for the person and for the program', async () => {
    const [early, late] = [await begin('room'), await begin('no room')];
    await approve(early.user_code);
    const count = await db
      .selectFrom('api_keys')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('account_id', '=', bed.accountId)
      .executeTakeFirstOrThrow();
    for (let have = count.count; have < 100; have++) await insertKey(db, bed.accountId, 'read', 'filler');
    assert.deepEqual(told(await approve(late.user_code)), [409, 'conflict']);
    assert.deepEqual(told(await pollNow(early.device_code)), [409, 'conflict']);
    await db.deleteFrom('api_keys').where('name', '=', 'filler').execute();
    assert.equal((await pollNow(early.device_code)).status, 200, 'the program may go on polling');
    assert.equal((await approve(late.user_code)).status, 204);
  });

  test('refuses pages of other sites, and bad input', async () => {
    const { device_code, user_code } = await begin();
    const headers = { origin: 'https://evil.test' };
    assert.deepEqual(told(await open('code', { name: 'x' }, { headers })), [403, 'forbidden']);
    assert.deepEqual(told(await open('token', { device_code }, { headers })), [403, 'forbidden']);
    for (const origin of [undefined, 'https://evil.test', 'null']) {
      const foreign = { cookie, ...(origin === undefined ? {} : { origin }) };
      for (const path of ['lookup', 'approve', 'deny']) {
        const body = { user_code, ...(path === 'approve' ? { scope: 'full' } : {}) };
        assert.deepEqual(told(await open(path, body, { headers: foreign })), [403, 'forbidden'], `${path} ${origin}`);
      }
    }
    for (const [path, body] of [
      ['code', {}],
      ['code', { name: '' }],
      ['code', { name: 'x'.repeat(256) }],
      ['code', { name: 'x\0' }],
      ['token', { device_code: 'nonsense' }],
    ] as const) {
      assert.deepEqual(told(await open(path, body)), [400, 'validation_error'], JSON.stringify(body));
    }
    for (const body of [{ user_code: '' }, { user_code: 'AAAA-AAAA' }, { user_code: `${user_code}B` }]) {
      assert.deepEqual(told(await act('lookup', body)), [400, 'validation_error'], JSON.stringify(body));
    }
    assert.deepEqual(told(await approve(user_code, 'admin')), [400, 'validation_error']);
    assert.deepEqual(told(await pollNow(`sbd_${'x'.repeat(43)}`)), [400, 'expired_token']);
    assert.equal((await lookUp(user_code)).status, 200, 'nobody has answered it');
  });

  test('is stored without its codes and its key', async () => {
    const { device_code, user_code } = await begin('stored');
    await approve(user_code);
    const { key } = (await pollNow(device_code)).json;
    const { rows } = await sql<{ text: string }>`
      select to_jsonb(t)::text as text from device_logins t
      union all select to_jsonb(t)::text from api_keys t
      union all select to_jsonb(t)::text from device_guesses t`.execute(db);
    const stored = rows.map(({ text }) => text).join('\n');
    assert(stored.includes('"stored"'));
    const bare = user_code.replace('-', '');
    for (const secret of [device_code, user_code, bare, key]) {
      assert(!stored.includes(secret));
      assert(!stored.includes(Buffer.from(secret).toString('hex')));
      assert(!bed.logged().includes(secret));
    }
    // The plain SHA-256 of a user code would tell the code, because there are few enough to try them all.
    const { createHash } = await import('node:crypto');
    for (const text of [user_code, bare]) {
      assert(!stored.includes(createHash('sha256').update(text).digest('hex')));
    }
  });

  test('is removed an hour after its end', async () => {
    const [old, young] = [await begin('old'), await begin('young')];
    await setLogin(old.device_code, sql`expires_at = now() - interval '61 minutes'`);
    await setLogin(young.device_code, sql`expires_at = now() - interval '59 minutes'`);
    await sweepDeviceLogins(db);
    const left = await db.selectFrom('device_logins').select('name').where('name', 'in', ['old', 'young']).execute();
    assert.deepEqual(left, [{ name: 'young' }]);
  });
});

describe('wrong user codes', () => {
  test('are refused after five, for ten minutes after the last, in every request and session of the account', async () => {
    await forgetGuesses();
    const { user_code } = await begin();
    const secondSession = await bed.session();
    const [a = '', b = '', c = '', d = '', e = '', f = ''] = WRONG;
    assert.deepEqual(told(await lookUp(a)), [404, 'not_found']);
    assert.deepEqual(told(await approve(b)), [404, 'not_found']);
    assert.deepEqual(told(await deny(c, { as: secondSession })), [404, 'not_found']);
    assert.equal((await lookUp(user_code)).status, 200, 'a right code does not count');
    assert.deepEqual(told(await lookUp(d, { plane: second })), [404, 'not_found']);
    assert.deepEqual(told(await lookUp(e)), [404, 'not_found']);
    for (const as of [cookie, secondSession]) {
      for (const code of [f, user_code]) {
        const refused = await lookUp(code, { as });
        assert.deepEqual(told(refused), [429, 'rate_limited']);
        const waitSec = Number(refused.headers.get('retry-after'));
        assert(waitSec > 540 && waitSec <= 600, `${waitSec}`);
      }
      assert.deepEqual(told(await approve(user_code, 'full', { as })), [429, 'rate_limited']);
      assert.deepEqual(told(await deny(user_code, { as })), [429, 'rate_limited']);
    }
    assert.equal(
      (await lookUp(user_code, { as: otherCookie })).status,
      200,
      'other accounts have guesses of their own',
    );
    const since = (time: string) =>
      sql`update device_guesses set last_wrong_at = now() - ${time}::interval`.execute(db);
    await since('9 minutes 55 seconds');
    assert.deepEqual(told(await lookUp(user_code)), [429, 'rate_limited']);
    await since('10 minutes 1 second');
    assert.equal((await lookUp(user_code)).status, 200);
    assert.deepEqual(told(await lookUp(a)), [404, 'not_found'], 'it has five again');
  });

  test('are five also when they come at once', async () => {
    await forgetGuesses();
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) => lookUp(WRONG[index % 6] ?? '', { plane: index % 2 ? first : second })),
    );
    assert.equal(answers.filter(({ status }) => status === 404).length, 5);
    assert.equal(answers.filter(({ status }) => status === 429).length, 7);
    await forgetGuesses();
  });
});

describe('requests for codes', () => {
  test('are limited for each address together with sign-ins, and polls are not', async () => {
    const signInAddress = { perSec: 1 / 3600, burst: 3 };
    const limited = await startTestBed({
      config: { rates: { ...bed.plane.app.config.rates, signInAddress } },
    });
    const ask = () => limited.api('POST', `${PATH}/code`, { key: null, body: { name: 'x' } });
    const answers = [await ask(), await ask(), await ask(), await ask()];
    assert.deepEqual(answers.map(told), [
      [200, undefined],
      [200, undefined],
      [200, undefined],
      [429, 'rate_limited'],
    ]);
    const body = { email: 'owner@example.test', password: 'x' };
    assert.equal((await limited.api('POST', '/v1/auth/sign-in', { key: null, body })).status, 429);
    const { device_code } = answers[0]?.json ?? {};
    const polled = await limited.api('POST', `${PATH}/token`, { key: null, body: { device_code } });
    assert.deepEqual(told(polled), [400, 'authorization_pending']);
  });
});
