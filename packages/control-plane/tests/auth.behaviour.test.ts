// Tests of accounts and dashboard sessions, on real PostgreSQL and with a real mail server.
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { resumeAccount, suspendAccount } from '../src/accounts/status.ts';
import { insertAccount } from '../src/accounts/store.ts';
import { readAuthConfig } from '../src/auth/config.ts';
import { setPassword } from '../src/auth/password.ts';
import { ConfigError } from '../src/config-error.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { callAdmin } from './support/admin.ts';
import { startMail } from './support/mail-server.ts';
import { until } from './support/postgres.ts';
import { cookieOf, startTestBed, TEST_ORIGIN, TEST_PASSWORD, type TestBed } from './support/test-bed.ts';

const OWNER = 'owner@example.test';
const AUTH = { publicUrl: TEST_ORIGIN, signUpBilling: 'prepaid', mail: undefined, oidc: undefined } as const;

const signIn = (bed: TestBed, email: string, password: string, headers: Record<string, string> = {}) =>
  bed.api('POST', '/v1/auth/sign-in', { key: null, body: { email, password }, headers });
const account = (bed: TestBed, cookie: string, replica = 0) =>
  bed.api('GET', '/v1/account', { key: null, headers: { cookie }, plane: bed.replicas[replica] ?? bed.plane });
const act = (bed: TestBed, path: string, cookie: string, body?: object, headers: Record<string, string> = {}) =>
  bed.api('POST', path, { key: null, body, headers: { cookie, origin: TEST_ORIGIN, ...headers } });

/** Returns every row of every table as JSON text, so that a test can search it for secrets. */
async function dump({ plane }: TestBed): Promise<string> {
  const { db } = plane.app;
  const { rows } = await sql<{ name: string }>`
    select c.relname as name from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
      and not c.relispartition`.execute(db);
  const texts = [];
  for (const { name } of rows.filter(({ name }) => !name.startsWith('kysely'))) {
    const { rows: content } = await sql<{
      row: string;
    }>`select to_jsonb(t)::text as row from ${sql.table(name)} t`.execute(db);
    texts.push(name, ...content.map(({ row }) => row));
  }
  return texts.join('\n');
}

const mail = await startMail();
const [closed, open, tls, bed, mailed] = await Promise.all([
  startTestBed(),
  startTestBed({ config: { auth: { ...AUTH, signUp: 'open' } } }),
  startTestBed({ config: { auth: { ...AUTH, signUp: 'open', publicUrl: 'https://sandbar.test' } } }),
  startTestBed({ replicas: 2 }),
  startTestBed({
    replicas: 2,
    config: { auth: { ...AUTH, signUp: 'closed', mail: { smtpUrl: mail.url, from: 'sandbar@example.test' } } },
  }),
]);

describe('sign-up', () => {
  const signUp = (bed: TestBed, body: object, headers = {}) =>
    bed.api('POST', '/v1/auth/sign-up', { key: null, body, headers });
  const ada = { email: 'Ada@Example.com', password: 'correct horse', name: 'Ada' };

  test('is closed unless the operator opened it', async () => {
    const answer = await signUp(closed, ada);
    assert.equal(answer.status, 403);
    assert.equal(answer.json.code, 'forbidden');
    assert.match(answer.json.detail, /closed/);
  });

  test('makes a free, prepaid account and signs in to it', async () => {
    const answer = await signUp(open, ada);
    assert.equal(answer.status, 201, answer.text);
    const { email, tier, billing_mode, balance } = answer.json;
    assert.deepEqual(
      { email, tier, billing_mode, balance },
      { email: 'ada@example.com', tier: 'free', billing_mode: 'prepaid', balance: '0.000000' },
    );
    const me = await account(open, cookieOf(answer.headers));
    assert.equal(me.json.id, answer.json.id);
    const row = await open.plane.app.db
      .selectFrom('accounts')
      .selectAll()
      .where('id', '=', answer.json.id)
      .executeTakeFirstOrThrow();
    assert.deepEqual([row.name, row.email_verified], ['Ada', false]);
  });

  test('an address that is taken, in any case, is 409', async () => {
    const body = { ...ada, email: 'OWNER@example.test' };
    assert.equal((await signUp(open, body)).status, 409);
    const both = await Promise.all([1, 2].map(() => signUp(open, { ...ada, email: 'twice@example.com' })));
    assert.deepEqual(both.map(({ status }) => status).sort(), [201, 409]);
  });

  test('bad input is 400, another site 403', async () => {
    for (const body of [
      { ...ada, password: '1234567' },
      { ...ada, password: 'x'.repeat(129) },
      { ...ada, email: 'no address' },
      { ...ada, email: 'a@b' },
      { ...ada, tier: 'enterprise' },
      { ...ada, emailVerified: true },
    ]) {
      const answer = await signUp(open, { ...body });
      assert.equal(answer.status, 400, JSON.stringify(body));
    }
    assert.equal((await signUp(open, ada, { origin: 'https://evil.test' })).status, 403);
  });
});

describe('sessions', () => {
  const { db } = bed.plane.app;

  test('sign-in takes an address in any case and sets a cookie that no script reads', async () => {
    await bed.session();
    const answer = await signIn(bed, 'Owner@Example.TEST', TEST_PASSWORD);
    assert.equal(answer.status, 200);
    assert.equal(answer.json.id, bed.accountId);
    const [cookie = '', ...others] = answer.headers.getSetCookie();
    assert.deepEqual(
      others.map((line) => line.split('=')[0]),
      ['sandbar_device'],
    );
    assert.match(cookie, /^sandbar_session=[^;]+; Max-Age=604800; Path=\/; HttpOnly; SameSite=Lax$/);
    const { rows } = await sql<{ days: number }>`
      select extract(epoch from max(expires_at) - now()) / 86400 as days from sessions`.execute(db);
    assert.equal(Math.round(Number(rows[0]?.days)), 7);
  });

  test('an address without a dot signs in: the first account has one', async () => {
    const id = await insertAccount(db, { email: 'owner@localhost', tier: 'enterprise' });
    await setPassword(db, id, 'some password');
    assert.equal((await signIn(bed, 'owner@localhost', 'some password')).status, 200);
  });

  test('a wrong password, an account without one and an unknown address are told alike', async () => {
    const answers = await Promise.all([
      signIn(bed, OWNER, 'not the password'),
      signIn(bed, OWNER, ''),
      signIn(bed, 'other@example.test', 'not the password'),
      signIn(bed, 'nobody@example.test', 'not the password'),
    ]);
    for (const answer of answers) {
      assert.equal(answer.status, 401);
      assert.deepEqual(answer.json, answers[0]?.json);
      assert.deepEqual(answer.headers.getSetCookie(), []);
    }
  });

  test('an unknown address costs the same work', async () => {
    let hashed = 0;
    const count = (_id: number, type: string) => {
      if (type === 'SCRYPTREQUEST') hashed++;
    };
    const hook = createHook({ init: count }).enable();
    const workFor = async (email: string) => {
      const before = hashed;
      await signIn(bed, email, 'not the password');
      return hashed - before;
    };
    assert.deepEqual([await workFor(OWNER), await workFor('nobody@example.test')], [1, 1]);
    hook.disable();
  });

  test('acts as scope full, on every replica', async () => {
    const cookie = await bed.session();
    assert.equal((await account(bed, cookie, 1)).json.id, bed.accountId);
    const created = await act(bed, '/v1/machines', cookie, { name: 'by session' });
    assert.ok(created.status < 300, created.text);
    assert.equal(created.json.account_id, bed.accountId);
  });

  test('an Authorization header is used alone', async () => {
    const cookie = await bed.session();
    const wrong = await bed.api('GET', '/v1/account', { key: 'sbr_wrong', headers: { cookie } });
    assert.equal(wrong.status, 401);
    const other = await bed.api('GET', '/v1/account', { key: bed.keys.other, headers: { cookie } });
    assert.equal(other.json.email, 'other@example.test');
  });

  test('sign-out ends it on the other replica at once', async () => {
    const [cookie, kept] = [await bed.session(), await bed.session()];
    const out = await act(bed, '/v1/auth/sign-out', cookie);
    assert.equal(out.status, 204);
    assert.match(out.headers.getSetCookie()[0] ?? '', /^sandbar_session=; Max-Age=0; /);
    assert.equal((await account(bed, cookie, 1)).status, 401);
    assert.equal((await account(bed, kept, 1)).status, 200);
    assert.equal((await act(bed, '/v1/auth/sign-out', cookie)).status, 401);
  });

  test('ends at its time', async () => {
    const cookie = await bed.session();
    const end = (time: string) =>
      sql`update sessions set expires_at = now() + ${time}::interval where account_id = ${bed.accountId}`.execute(db);
    await end('1 minute');
    assert.equal((await account(bed, cookie)).status, 200);
    await end('-1 millisecond');
    assert.equal((await account(bed, cookie)).status, 401);
  });

  test('a cookie that was tampered with is refused without a query', async () => {
    const cookie = decodeURIComponent(await bed.session());
    const [name = '', token = '', signature = ''] = /^(sandbar_session=)(.+)\.(.+)$/.exec(cookie)?.slice(1) ?? [];
    const { token_hash } = await db
      .selectFrom('sessions')
      .select('token_hash')
      .orderBy('created_at', 'desc')
      .executeTakeFirstOrThrow();
    for (const value of [
      `${token}.${signature.slice(1)}x`,
      `${token}x.${signature}`,
      `${token}.`,
      token,
      '',
      '%',
      `${token_hash}.${signature}`,
      `.${signature}`,
    ]) {
      assert.equal((await account(bed, name + encodeURIComponent(value))).status, 401, value);
    }
    assert.equal((await account(bed, `${name}%`)).status, 401);
    assert.equal((await account(bed, `a=b; ${name}${encodeURIComponent(`${token}.${signature}`)}; c=d`)).status, 200);
  });

  test('a change must come from a page of ours', async () => {
    const cookie = await bed.session();
    const attempt = (headers: Record<string, string>) =>
      bed.api('POST', '/v1/machines', { key: null, body: { vcpus: 0 }, headers: { cookie, ...headers } });
    const { host, port } = bed.plane.address;
    assert.equal((await attempt({})).status, 403);
    assert.equal((await attempt({ origin: 'https://sandbar.test' })).status, 403);
    assert.equal((await attempt({ origin: 'null' })).status, 403);
    assert.equal((await attempt({ origin: 'http://evil.test', 'sec-fetch-site': 'same-origin' })).status, 403);
    assert.equal((await attempt({ 'sec-fetch-site': 'same-site' })).status, 403);
    // The body is invalid, but it is checked only after the origin: 400 shows that the origin was accepted.
    assert.equal((await attempt({ origin: TEST_ORIGIN })).status, 400);
    assert.equal((await attempt({ origin: `http://${host}:${port}` })).status, 400);
    assert.equal((await attempt({ origin: `http://localhost:${port}` })).status, 400);
    assert.equal((await attempt({ 'sec-fetch-site': 'same-origin' })).status, 403);
    assert.equal((await signIn(bed, OWNER, TEST_PASSWORD, { origin: 'http://evil.test' })).status, 403);
    assert.equal((await signIn(bed, OWNER, TEST_PASSWORD, { origin: TEST_ORIGIN })).status, 200);
  });

  test('the header Host does not make a page ours (RES-13)', async () => {
    const cookie = await bed.session();
    const { host, port } = bed.plane.address;
    const headers = { host: 'evil.example', origin: 'http://evil.example', cookie, 'content-type': 'application/json' };
    // Use Node's `request`, because `fetch` does not let the test set the header Host.
    const sending = request({ host, port, method: 'POST', path: '/v1/machines', headers });
    sending.end('{}');
    const [answer] = (await once(sending, 'response')) as [IncomingMessage];
    answer.resume();
    assert.equal(answer.statusCode, 403);
  });

  test('a sign-in gives the browser a device cookie, which alone lets nobody in', async () => {
    await bed.session();
    const { headers } = await signIn(bed, OWNER, TEST_PASSWORD);
    const device = headers.getSetCookie().find((line) => line.startsWith('sandbar_device=')) ?? '';
    assert.match(device, /; Path=\/v1\/auth; HttpOnly; SameSite=Lax$/);
    assert.equal((await account(bed, device.split(';')[0] ?? '')).status, 401);
  });

  test('the cookie is Secure where browsers come over TLS', async () => {
    await setPassword(tls.plane.app.db, tls.accountId, TEST_PASSWORD);
    const signedIn = await signIn(tls, OWNER, TEST_PASSWORD);
    const body = { email: 'new@example.com', password: TEST_PASSWORD };
    const signedUp = await tls.api('POST', '/v1/auth/sign-up', { key: null, body });
    for (const { headers } of [signedIn, signedUp]) {
      assert.match(headers.getSetCookie()[0] ?? '', /^sandbar_session=.*; Secure(;|$)/);
      assert.match(headers.getSetCookie()[0] ?? '', /; HttpOnly; .*SameSite=Lax/);
    }
  });
});

describe('the first account', () => {
  const ask = async () =>
    (await callAdmin(tls.plane.app.config.adminSocket, '/admin/bootstrap', { email: 'owner@localhost' })).json;

  test('of an older version gets a password once, which signs in', async () => {
    const { db } = tls.plane.app;
    await db.deleteFrom('credentials').execute();
    await db.updateTable('accounts').set({ is_owner: true }).where('id', '=', tls.accountId).execute();
    const { email, password, api_key, account_id } = await ask();
    assert.deepEqual([email, api_key, account_id], [OWNER, null, tls.accountId]);
    assert.match(String(password), /^[a-z2-9]{24}$/);
    assert.equal((await signIn(tls, OWNER, String(password))).status, 200);
    assert.equal((await ask()).password, null);
    assert.equal((await signIn(tls, OWNER, String(password))).status, 200);
  });

  test('is made with a key and a password', async () => {
    const { db } = tls.plane.app;
    await db.deleteFrom('accounts').execute();
    const { password, api_key } = await ask();
    const answer = await signIn(tls, 'owner@localhost', String(password));
    assert.deepEqual([answer.status, answer.json.tier, answer.json.billing_mode], [200, 'enterprise', 'unmetered']);
    assert.equal((await tls.api('GET', '/v1/account', { key: String(api_key) })).json.id, answer.json.id);
  });
});

describe('configuration', () => {
  const read = (env: Record<string, string>) => readAuthConfig(env, 'http://127.0.0.1:7070');

  test('by default sign-up is closed and nothing else is there', () => {
    assert.deepEqual(read({}), {
      publicUrl: 'http://127.0.0.1:7070',
      signUp: 'closed',
      signUpBilling: 'prepaid',
      mail: undefined,
      oidc: undefined,
    });
  });

  test('a bad value is refused by name, and a secret is not repeated', () => {
    const oidc = { SANDBAR_OIDC_ISSUER: 'https://id.test', SANDBAR_OIDC_CLIENT_ID: 'a' };
    for (const [env, words] of [
      [{ SANDBAR_SIGN_UP: 'yes' }, /SANDBAR_SIGN_UP must be closed or open/],
      [{ SANDBAR_SIGN_UP_BILLING: 'free' }, /SANDBAR_SIGN_UP_BILLING must be prepaid or unmetered/],
      [{ SANDBAR_PUBLIC_URL: 'sandbar.test' }, /SANDBAR_PUBLIC_URL must be a URL/],
      [{ SANDBAR_PUBLIC_URL: 'https://sandbar.test/app' }, /SANDBAR_PUBLIC_URL must be an origin/],
      [oidc, /SANDBAR_OIDC_CLIENT_SECRET is not set/],
      [{ SANDBAR_SMTP_URL: 'smtp://u:hush@mail.test' }, /^(?!.*hush).*SANDBAR_MAIL_FROM is not set/],
      [
        { SANDBAR_SMTP_URL: 'http://u:hush@mail.test', SANDBAR_MAIL_FROM: 'a@b' },
        /^(?!.*hush).*SANDBAR_SMTP_URL must be/,
      ],
    ] as const) {
      assert.throws(
        () => read(env),
        (error) => error instanceof ConfigError && words.test(error.message),
      );
    }
    assert.equal(read({ SANDBAR_PUBLIC_URL: 'https://Sandbar.test/' }).publicUrl, 'https://sandbar.test');
  });
});

describe('passwords', () => {
  const bed = mailed;
  const { db } = bed.plane.app;
  const secrets: string[] = [TEST_PASSWORD, ...Object.values(bed.keys)];
  const remember = (cookie: string) => {
    const value = decodeURIComponent(cookie.slice(cookie.indexOf('=') + 1));
    secrets.push(value, encodeURIComponent(value), value.split('.')[0] ?? value);
    return cookie;
  };
  const askForLink = async (email: string) => {
    const before = mail.mails.length;
    const answer = await bed.api('POST', '/v1/auth/request-password-reset', { key: null, body: { email } });
    assert.equal(answer.status, 202, answer.text);
    assert.equal(answer.text, '');
    await until(() => mail.mails.length > before, 'the mail came');
    const link = /http:\/\/sandbar\.test\/reset-password#token=(\S+)/.exec(mail.mails.at(-1) ?? '');
    assert.ok(link?.[1], mail.mails.at(-1));
    secrets.push(link[1]);
    return link[1];
  };
  const reset = (token: string, new_password: string) => {
    secrets.push(new_password);
    return bed.api('POST', '/v1/auth/reset-password', { key: null, body: { token, new_password } });
  };

  test('changing one ends all other sessions and goes on with a new cookie', async () => {
    const [cookie, other] = [remember(await bed.session()), remember(await bed.session())];
    const change = (current_password: string, new_password: string) =>
      act(bed, '/v1/auth/change-password', cookie, { current_password, new_password });
    const wrong = await change('not the password', 'a new password');
    assert.equal(wrong.status, 400);
    assert.match(wrong.json.detail, /^current_password/);
    assert.equal((await account(bed, other, 1)).status, 200);
    secrets.push('a new password');
    const changed = await change(TEST_PASSWORD, 'a new password');
    assert.equal(changed.status, 204, changed.text);
    assert.equal((await account(bed, other, 1)).status, 401);
    assert.equal((await account(bed, cookie, 1)).status, 401);
    assert.equal((await account(bed, remember(cookieOf(changed.headers)), 1)).status, 200);
    assert.equal((await signIn(bed, OWNER, TEST_PASSWORD)).status, 401);
    assert.equal((await signIn(bed, OWNER, 'a new password')).status, 200);
  });

  test('needs a session, not a key', async () => {
    const body = { current_password: 'a new password', new_password: 'another password' };
    assert.equal((await bed.api('POST', '/v1/auth/change-password', { body })).status, 403);
    assert.equal((await bed.api('POST', '/v1/auth/sign-out')).status, 403);
  });

  test('a link from a mail works once and ends all sessions', async () => {
    const cookie = remember(cookieOf((await signIn(bed, OWNER, 'a new password')).headers));
    const [first, token] = [await askForLink(OWNER), await askForLink('OWNER@example.test')];
    assert.equal((await reset(token, 'short')).status, 400);
    assert.equal((await reset('unknown', 'a third password')).status, 400);
    const results = await Promise.all([reset(token, 'a third password'), reset(token, 'a third password')]);
    assert.deepEqual(results.map(({ status }) => status).sort(), [204, 400]);
    assert.equal((await account(bed, cookie, 1)).status, 401);
    assert.equal((await signIn(bed, OWNER, 'a new password')).status, 401);
    assert.equal((await signIn(bed, OWNER, 'a third password')).status, 200);
    assert.equal((await reset(token, 'a fourth password')).status, 400);
    assert.equal((await reset(first, 'a fourth password')).status, 400, 'other links end with it');
  });

  test('a link ends after an hour', async () => {
    const token = await askForLink(OWNER);
    const { rows } = await sql<{ minutes: number }>`
      select extract(epoch from expires_at - now()) / 60 as minutes from verifications`.execute(db);
    assert.equal(Math.round(Number(rows[0]?.minutes)), 60);
    await sql`update verifications set expires_at = now() - interval '1 second'`.execute(db);
    assert.equal((await reset(token, 'a fifth password')).status, 400);
    assert.equal((await signIn(bed, OWNER, 'a fifth password')).status, 401);
  });

  test('asking for a link says nothing about who has an account', async () => {
    const before = mail.mails.length;
    const nobody = { key: null, body: { email: 'nobody@example.test' } };
    assert.equal((await bed.api('POST', '/v1/auth/request-password-reset', nobody)).status, 202);
    await askForLink(OWNER);
    assert.equal(mail.mails.length, before + 1);
    const none = await closed.api('POST', '/v1/auth/request-password-reset', nobody);
    assert.equal(none.status, 403);
    assert.match(none.json.detail, /sandbar admin account password/);
  });

  test('of a suspended account is not set by a link, neither an old one nor a new one', async () => {
    await bed.session();
    const token = await askForLink(OWNER);
    const suspend = (change: typeof suspendAccount) => inTransaction(db, (tx) => change(tx, bed.accountId));
    await suspend(suspendAccount);
    assert.equal((await reset(token, 'a password of the suspension')).status, 400);
    const count = mail.mails.length;
    for (const email of [OWNER, 'other@example.test']) {
      const answer = await bed.api('POST', '/v1/auth/request-password-reset', { key: null, body: { email } });
      assert.equal(answer.status, 202);
    }
    const toOther = () => mail.mails.slice(count).some((text) => text.includes('To: other@example.test'));
    await until(toOther, 'the mail to the other account came');
    assert.equal(mail.mails.length, count + 1);
    await suspend(resumeAccount);
    await askForLink(OWNER);
  });

  test('one that the operator sets ends all sessions', async () => {
    const cookie = remember(cookieOf((await signIn(bed, OWNER, 'a third password')).headers));
    const token = await askForLink(OWNER);
    await setPassword(db, bed.accountId, 'set by hand');
    secrets.push('set by hand');
    assert.equal((await account(bed, cookie, 1)).status, 401);
    assert.equal((await reset(token, 'a sixth password')).status, 400);
    const again = await signIn(bed, OWNER, 'set by hand');
    assert.equal(again.status, 200);
    remember(cookieOf(again.headers));
  });

  test('no secret is in a column or in the log', async () => {
    const cookie = cookieOf((await signIn(bed, OWNER, 'set by hand')).headers);
    const made = await act(bed, '/v1/api-keys', remember(cookie), { name: 'k', scope: 'full' });
    secrets.push(made.json.key);
    await askForLink(OWNER);
    const stored = await dump(bed);
    assert.match(stored, /"token_hash"/);
    assert.match(stored, /"password_hash": "scrypt:/);
    for (const secret of secrets) {
      assert.ok(secret.length > 4, 'a secret to look for');
      assert.ok(!stored.includes(secret), `the database holds ${secret}`);
      assert.ok(!bed.logged().includes(secret), `the log holds ${secret}`);
    }
  });
});
