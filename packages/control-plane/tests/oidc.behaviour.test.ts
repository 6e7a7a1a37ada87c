// Tests of signing in through OpenID Connect, with a real provider that runs in this process.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';
import { sql } from 'kysely';
import { Provider } from 'oidc-provider';
import { cookieOf, startTestBed, TEST_ORIGIN, TEST_PASSWORD, type TestBed } from './support/test-bed.ts';

const CLIENT = { clientId: 'sandbar', clientSecret: 'the secret of the client' };

/** The accounts at the OpenID provider, by login name. */
const PEOPLE: Record<string, { email: string; email_verified: boolean }> = {
  owner: { email: 'Owner@example.test', email_verified: true },
  other: { email: 'other@example.test', email_verified: false },
  stranger: { email: 'stranger@example.test', email_verified: true },
  colleague: { email: 'colleague@example.test', email_verified: true },
  shady: { email: 'shady@example.test', email_verified: false },
  unproven: { email: 'unproven@example.test', email_verified: true },
};

async function startProvider(): Promise<{ issuer: string; server: Server }> {
  let handle: (request: IncomingMessage, response: ServerResponse) => unknown = () => undefined;
  const server = createServer((request, response) => void handle(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT.clientId,
        client_secret: CLIENT.clientSecret,
        redirect_uris: [`${TEST_ORIGIN}/v1/auth/oidc/callback`],
      },
    ],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    cookies: { keys: ['a key of the tests'] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: async () => ({ sub: id, name: id, ...PEOPLE[id] }),
    }),
  });
  handle = provider.callback();
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { issuer, server };
}

/**
 * Follows the provider's pages as a browser does, until the provider redirects back to us. Returns the address of that
 * redirect. `jar` has the cookies of the provider, and so its session.
 */
async function logIn(start: string, login: string, jar = new Map<string, string>()): Promise<URL> {
  const visit = async (url: string, body?: URLSearchParams): Promise<Response> => {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie },
      ...(body ? { method: 'POST', body } : {}),
    });
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      jar.set(name, value);
    }
    return response;
  };
  let response = await visit(start);
  for (let step = 0; step < 20; step++) {
    const location = response.headers.get('location');
    if (location?.startsWith(TEST_ORIGIN)) return new URL(location);
    if (location) {
      response = await visit(new URL(location, response.url).href);
      continue;
    }
    const page = await response.text();
    const action = /<form[^>]* action="([^"]+)"/.exec(page)?.[1];
    const prompt = /name="prompt" value="([^"]+)"/.exec(page)?.[1];
    assert.ok(action && prompt, page);
    const form = new URLSearchParams({ prompt, login, password: 'any' });
    response = await visit(new URL(action, response.url).href, form);
  }
  throw new Error('The provider never sent us back.');
}

const provider = await startProvider();
const auth = { publicUrl: TEST_ORIGIN, signUpBilling: 'prepaid', mail: undefined } as const;
const oidc = { issuer: provider.issuer, ...CLIENT };
const [closed, open, none, away] = await Promise.all([
  startTestBed({ config: { auth: { ...auth, oidc, signUp: 'closed' } } }),
  startTestBed({ config: { auth: { ...auth, oidc, signUp: 'open' } } }),
  startTestBed(),
  startTestBed({ config: { auth: { ...auth, oidc: { ...oidc, issuer: 'http://127.0.0.1:1' }, signUp: 'open' } } }),
]);

const begin = (bed: TestBed) => bed.api('GET', '/v1/auth/oidc/sign-in', { key: null });
const comeBack = (bed: TestBed, back: URL, cookie: string) =>
  bed.api('GET', `${back.pathname}${back.search}`, { key: null, headers: { cookie } });

async function signIn(bed: TestBed, login: string) {
  const begun = await begin(bed);
  assert.equal(begun.status, 302, begun.text);
  const cookie = cookieOf(begun.headers);
  const back = await logIn(begun.headers.get('location') ?? '', login);
  return { answer: await comeBack(bed, back, cookie), back, cookie };
}

const accountOf = (bed: TestBed, headers: Headers) =>
  bed.api('GET', '/v1/account', { key: null, headers: { cookie: cookieOf(headers) } });
const addresses = async ({ plane }: TestBed) =>
  (await plane.app.db.selectFrom('accounts').select('email').orderBy('email').execute()).map(({ email }) => email);

/** The cookie of a new session. `change` changes the address at the provider, as the person at the browser could. */
async function sessionOf(
  bed: TestBed,
  login: string,
  jar: Map<string, string>,
  confirm: boolean,
  change = (_: URL) => {},
) {
  const begun = await bed.api('GET', `/v1/auth/oidc/sign-in${confirm ? '?confirm=true' : ''}`, { key: null });
  const start = new URL(begun.headers.get('location') ?? '');
  change(start);
  const back = await logIn(start.href, login, jar);
  const answer = await comeBack(bed, back, cookieOf(begun.headers));
  assert.equal(answer.headers.get('location'), confirm ? '/accounts' : '/');
  return cookieOf(answer.headers);
}

describe('the session of an operator who signs in through OpenID Connect', () => {
  const makeOperator = (bed: TestBed, email: string) =>
    bed.plane.app.db.updateTable('accounts').set({ is_operator: true }).where('email', '=', email).execute();
  const use = async (bed: TestBed, cookie: string) => {
    const { status, json } = await bed.api('GET', '/admin/v1/accounts', { key: null, headers: { cookie } });
    return [status, json.code];
  };

  test('asks for the password of an account that has one, however the person signed in', async () => {
    await makeOperator(closed, 'owner@example.test');
    // Gives the account its password.
    await closed.session();
    for (const confirm of [false, true]) {
      const cookie = await sessionOf(closed, 'owner', new Map(), confirm);
      assert.deepEqual(await use(closed, cookie), [403, 'password_required']);
      const headers = { cookie, origin: TEST_ORIGIN };
      const body = { password: TEST_PASSWORD };
      assert.equal((await closed.api('POST', '/v1/auth/confirm-password', { key: null, headers, body })).status, 204);
      assert.deepEqual(await use(closed, cookie), [200, undefined]);
    }
  });

  test('asks an account without a password to sign in again, and the provider then asks the person', async () => {
    const jar = new Map<string, string>();
    await sessionOf(open, 'colleague', jar, false);
    await makeOperator(open, 'colleague@example.test');
    // The provider has a session now, so it asks nothing.
    assert.deepEqual(await use(open, await sessionOf(open, 'nobody', jar, false)), [403, 'sign_in_required']);
    assert.deepEqual(await use(open, await sessionOf(open, 'colleague', jar, true)), [200, undefined]);
  });

  test('counts from the time when the provider asked, also for a person who changes the address', async () => {
    const jar = new Map<string, string>();
    const asked = await sessionOf(open, 'colleague', jar, true);
    const silent = await sessionOf(open, 'nobody', jar, true, ({ searchParams }) => {
      searchParams.delete('prompt');
      searchParams.delete('max_age');
    });
    assert.deepEqual(await use(open, silent), [403, 'sign_in_required']);
    await sessionOf(open, 'nobody', jar, true, ({ searchParams }) => {
      searchParams.delete('prompt');
      searchParams.set('max_age', '100000');
    });
    const { rows } = await sql<{ times: number; sessions: number }>`
      select count(distinct confirmed_at)::int as times, count(*)::int as sessions
      from (
        select s.confirmed_at from sessions s join accounts a on a.id = s.account_id
        where a.email = 'colleague@example.test' order by s.created_at desc limit 3
      ) as latest`.execute(open.plane.app.db);
    // The first and the last session have the time of the same answer; the second one has none.
    assert.deepEqual(rows, [{ times: 2, sessions: 3 }]);
    assert.deepEqual(await use(open, asked), [200, undefined]);
  });
});

describe('OpenID Connect', () => {
  test('is a 404 where none is configured', async () => {
    assert.equal((await begin(none)).status, 404);
    assert.equal((await none.api('GET', '/v1/auth/oidc/callback?code=a&state=b', { key: null })).status, 404);
  });

  test('a provider that is away sends the browser to the sign-in page', async () => {
    const answer = await begin(away);
    assert.deepEqual([answer.status, answer.headers.get('location')], [302, '/sign-in?error=provider_unavailable']);
  });

  test('signs in to the account with the same verified address, again and again', async () => {
    for (let round = 0; round < 2; round++) {
      const { answer } = await signIn(closed, 'owner');
      assert.deepEqual([answer.status, answer.headers.get('location')], [302, '/']);
      assert.match(
        answer.headers.getSetCookie().join('\n'),
        /sandbar_session=[^;]+; Max-Age=604800; Path=\/; HttpOnly/,
      );
      assert.equal((await accountOf(closed, answer.headers)).json.id, closed.accountId);
    }
    const { rows } = await sql<{
      row: string;
    }>`select to_jsonb(c)::text as row from credentials c where provider = 'oidc'`.execute(closed.plane.app.db);
    assert.equal(rows.length, 1);
    assert.match(rows[0]?.row ?? '', /"provider_account_id": "owner"/);
  });

  test('makes no account while sign-up is closed', async () => {
    const before = await addresses(closed);
    const { answer } = await signIn(closed, 'stranger');
    assert.deepEqual([answer.status, answer.headers.get('location')], [302, '/sign-in?error=signup_disabled']);
    assert.ok(!answer.headers.getSetCookie().some((cookie) => cookie.startsWith('sandbar_session=')));
    assert.deepEqual(await addresses(closed), before);
  });

  test('takes no account over with an address that the provider did not verify', async () => {
    for (const bed of [closed, open]) {
      const { answer } = await signIn(bed, 'other');
      assert.equal(answer.headers.get('location'), '/sign-in?error=account_not_linked');
      assert.ok(!answer.headers.getSetCookie().some((cookie) => cookie.startsWith('sandbar_session=')));
    }
  });

  test('joins no account whose own address nobody verified', async () => {
    const body = { email: 'unproven@example.test', password: 'of an impostor' };
    assert.equal((await open.api('POST', '/v1/auth/sign-up', { key: null, body })).status, 201);
    const { answer } = await signIn(open, 'unproven');
    assert.equal(answer.headers.get('location'), '/sign-in?error=account_not_linked');
  });

  test('makes a free account while sign-up is open, for a verified address only', async () => {
    const { answer } = await signIn(open, 'stranger');
    assert.equal(answer.headers.get('location'), '/');
    const { json } = await accountOf(open, answer.headers);
    assert.deepEqual([json.email, json.tier, json.billing_mode], ['stranger@example.test', 'free', 'prepaid']);
    const shady = await signIn(open, 'shady');
    assert.match(shady.answer.headers.get('location') ?? '', /^\/sign-in\?error=/);
    assert.ok(!(await addresses(open)).includes('shady@example.test'));
  });

  test('an answer without the cookie of its own sign-in, or a second time, is refused', async () => {
    const begun = await begin(closed);
    const back = await logIn(begun.headers.get('location') ?? '', 'owner');
    const foreign = cookieOf((await begin(closed)).headers);
    for (const cookie of ['', foreign]) {
      const answer = await comeBack(closed, back, cookie);
      assert.match(answer.headers.get('location') ?? '', /^\/sign-in\?error=state_/);
      assert.ok(!answer.headers.getSetCookie().some((line) => line.startsWith('sandbar_session=')));
    }
    const cookie = cookieOf(begun.headers);
    assert.equal((await comeBack(closed, back, cookie)).headers.get('location'), '/');
    assert.match((await comeBack(closed, back, cookie)).headers.get('location') ?? '', /^\/sign-in\?error=/);
  });

  test('no token of the provider is kept, and nothing of a sign-in is logged', async () => {
    const { back, cookie } = await signIn(closed, 'owner');
    const { db } = closed.plane.app;
    const { rows } = await sql<{ row: string }>`
      select to_jsonb(t)::text as row from credentials t union all
      select to_jsonb(t)::text from verifications t union all
      select to_jsonb(t)::text from sessions t`.execute(db);
    const stored = rows.map(({ row }) => row).join('\n');
    const secrets = [back.searchParams.get('code'), back.searchParams.get('state'), cookie, CLIENT.clientSecret];
    for (const secret of secrets) {
      assert.ok(secret && !stored.includes(secret) && !closed.logged().includes(secret));
    }
    assert.ok(!stored.includes('eyJ'), 'no JWT');
  });
});
