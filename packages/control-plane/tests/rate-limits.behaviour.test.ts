// Tests of rate limits: an account has one bucket for all replicas, parallel requests take exactly its tokens, headers
// describe the bucket, and a token is taken after the credential is checked and before the body is checked. The buckets
// refill so slowly that even a slow test never gains a token.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import fastify, { type FastifyBaseLogger } from 'fastify';
import { sql } from 'kysely';
import { writeDeviceCookie } from '../src/auth/device-cookie.ts';
import { installAuth } from '../src/http/auth.ts';
import { sendError } from '../src/http/errors.ts';
import { installRateLimits } from '../src/rate-limits/hook.ts';
import { addressKey } from '../src/rate-limits/sign-in.ts';
import { sweepBuckets, takeToken } from '../src/rate-limits/store.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';

/** Refill rate in tokens per second: one token in 1000 s. */
const SLOW = 0.001;
const rates = {
  mutating: { perSec: SLOW, burst: 8 },
  exec: { perSec: SLOW, burst: 5 },
  files: { perSec: SLOW, burst: 5 },
  signInAddress: { perSec: SLOW, burst: 4 },
  signInEmail: { perSec: SLOW, burst: 3 },
  signInUnknown: { perSec: SLOW, burst: 6 },
};
const bed = await startTestBed({ replicas: 2, config: { rates } });
const { api, keys, replicas } = bed;
const { db } = bed.plane.app;
const NOBODY = `/v1/machines/${randomUUID()}`;

const refill = () => db.deleteFrom('rate_buckets').execute();
/**
 * Returns the rate limit as the headers tell it: the limit, the tokens left, and the tokens missing until the bucket is
 * full. The header gives the last value as seconds. Rounding up hides the seconds that the test itself takes.
 */
const stand = ({ headers }: Answer) => {
  const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map((name) => headers.get(`ratelimit-${name}`));
  return [limit, remaining, reset && Math.ceil(Number(reset) * SLOW)];
};
const drain = async (path: string, count: number) => {
  for (let index = 0; index < count; index++) assert.equal((await api('POST', path)).status, 404);
};

describe('a rush over two replicas', () => {
  it('passes exactly the burst, and no more after it', async () => {
    await refill();
    const answers = await Promise.all(
      Array.from({ length: rates.mutating.burst + 20 }, (_, index) =>
        api('POST', `${NOBODY}/stop`, { plane: replicas[index % 2] ?? bed.plane }),
      ),
    );
    assert.equal(answers.filter(({ status }) => status === 404).length, rates.mutating.burst);
    const refused = answers.filter(({ status }) => status !== 404);
    for (const { status, json } of refused) assert.deepEqual([status, json.code], [429, 'rate_limited']);
    const left = answers
      .filter(({ status }) => status === 404)
      .map(({ headers }) => headers.get('ratelimit-remaining'));
    assert.deepEqual(left.sort(), ['0', '1', '2', '3', '4', '5', '6', '7'], 'each was told another rest');
    for (const plane of replicas) assert.equal((await api('POST', '/v1/machines', { plane })).status, 429);
  });

  it('concerns nobody else, no reads, and no jobs', async () => {
    assert.equal((await api('DELETE', NOBODY)).status, 429);
    assert.equal((await api('DELETE', NOBODY, { key: keys.other })).status, 404);
    const read = await api('GET', '/v1/machines');
    assert.deepEqual([read.status, ...stand(read)], [200, null, null, null]);
    assert.equal((await api('POST', `${NOBODY}/execs`, { body: { command: 'x' } })).status, 404);
    assert.equal((await api('POST', `${NOBODY}/execs/${randomUUID()}/cancel`)).status, 429, 'only starts are jobs');
  });
});

describe('headers', () => {
  it('tell the burst, the tokens left and when all are back, whatever the answer is', async () => {
    await refill();
    assert.deepEqual(stand(await api('DELETE', NOBODY)), ['8', '7', 1]);
    assert.deepEqual(stand(await api('POST', '/v1/machines', { body: { name: 5 } })), ['8', '6', 2]);
    assert.deepEqual(stand(await api('POST', `${NOBODY}/execs`, { body: { command: 'x' } })), ['5', '4', 1]);
    assert.deepEqual(stand(await api('POST', '/v1/machines')), ['8', '5', 3]);
  });

  it('a refusal says when a token is back, and takes none', async () => {
    await refill();
    await drain(`${NOBODY}/stop`, rates.mutating.burst);
    const key = `mutating:${bed.accountId}`;
    const before = await db.selectFrom('rate_buckets').selectAll().where('key', '=', key).execute();
    const refused = await api('POST', `${NOBODY}/stop`);
    assert.deepEqual(stand(refused), ['8', '0', 8]);
    const retryAfter = refused.headers.get('retry-after');
    assert.equal(Math.ceil(Number(retryAfter) * SLOW), 1);
    assert.equal(String(refused.json.detail).includes(`Retry in ${retryAfter} s.`), true);
    assert.deepEqual(await db.selectFrom('rate_buckets').selectAll().where('key', '=', key).execute(), before);
  });
});

describe('a bucket', () => {
  it('gets its tokens back with time, up to the burst', async () => {
    await refill();
    await drain(`${NOBODY}/stop`, rates.mutating.burst);
    const pass = (seconds: number) =>
      db
        .updateTable('rate_buckets')
        .set({ full_at: sql<Date>`full_at - ${seconds} * interval '1 second'` })
        .execute();
    await pass(2000);
    await drain(`${NOBODY}/stop`, 2);
    assert.equal((await api('POST', `${NOBODY}/stop`)).status, 429);
    await pass(1_000_000);
    await drain(`${NOBODY}/stop`, rates.mutating.burst);
    assert.equal((await api('POST', `${NOBODY}/stop`)).status, 429);
  });

  it('is full again after the clock of the database was set back by an hour', async () => {
    const rate = { perSec: 1, burst: 2 };
    await takeToken(db, 'set back', rate);
    await sql`update rate_buckets set full_at = full_at + interval '1 hour' where key = 'set back'`.execute(db);
    const taken = [await takeToken(db, 'set back', rate), await takeToken(db, 'set back', rate)];
    assert.deepEqual(
      taken.map(({ isAllowed, remaining }) => [isAllowed, remaining]),
      [
        [true, 1],
        [true, 0],
      ],
    );
  });

  it('that is full again is swept, one that is not stays', async () => {
    await refill();
    await takeToken(db, 'full', { perSec: SLOW, burst: 2 });
    await takeToken(db, 'taken', { perSec: SLOW, burst: 2 });
    await db
      .updateTable('rate_buckets')
      .set({ full_at: sql<Date>`now() - interval '1 second'` })
      .where('key', '=', 'full')
      .execute();
    await sweepBuckets(db);
    assert.deepEqual(await db.selectFrom('rate_buckets').select('key').execute(), [{ key: 'taken' }]);
  });
});

describe("an account's own rate", () => {
  const own = (set: { rate_mutating?: number | null; rate_exec?: number | null }) =>
    db.updateTable('accounts').set(set).where('id', '=', bed.accountId).execute();

  it('replaces the configured one at once, with a burst in proportion', async () => {
    await refill();
    await drain(`${NOBODY}/stop`, rates.mutating.burst);
    await own({ rate_mutating: 2 });
    assert.equal((await api('DELETE', NOBODY)).headers.get('ratelimit-limit'), '16000');
    assert.equal((await api('DELETE', NOBODY, { key: keys.other })).headers.get('ratelimit-limit'), '8');
    const job = await api('POST', `${NOBODY}/execs`, { body: { command: 'x' } });
    assert.equal(job.headers.get('ratelimit-limit'), '5');
    await own({ rate_mutating: null, rate_exec: 1 });
    assert.equal((await api('DELETE', NOBODY)).status, 429);
    const faster = await api('POST', `${NOBODY}/execs`, { body: { command: 'x' } });
    assert.equal(faster.headers.get('ratelimit-limit'), '5000');
    await own({ rate_exec: null });
  });
});

describe('the order of refusals', () => {
  it('401 and 403 come before 429 and take no token, 429 before 400, 404, 413 and 415', async () => {
    await refill();
    const bad = { body: { nonsense: 1 } };
    for (let index = 0; index < 10; index++) {
      assert.equal((await api('POST', '/v1/machines', { ...bad, key: keys.read })).status, 403);
      assert.equal((await api('POST', '/v1/machines', { ...bad, key: null })).status, 401);
    }
    for (let index = 0; index < rates.mutating.burst; index++)
      assert.equal((await api('POST', '/v1/machines', bad)).status, 400, 'what is invalid costs a token too');
    assert.equal((await api('POST', '/v1/machines', { ...bad, key: keys.read })).status, 403);
    assert.equal((await api('POST', '/v1/machines', { ...bad, key: null })).status, 401);
    assert.equal((await api('POST', '/v1/machines', bad)).status, 429);
    assert.equal((await api('POST', '/v1/machines/no-id/stop')).status, 429);
    assert.equal((await api('POST', '/v1/machines', { rawBody: ' '.repeat(2 ** 20 + 1) })).status, 429);
    const text = { rawBody: 'x', headers: { 'content-type': 'text/plain' } };
    assert.equal((await api('POST', '/v1/machines', text)).status, 429);
    assert.equal((await api('PATCH', '/v1/machines')).status, 405);
  });
});

describe('a route for who has no account yet', async () => {
  const server = fastify({ loggerInstance: bed.plane.app.log as FastifyBaseLogger });
  server.setErrorHandler(sendError);
  installAuth(server, bed.plane.app);
  installRateLimits(server, bed.plane.app);
  server.post('/sign-in', { config: { access: 'public', rateLimit: 'sign-in' } }, async () => ({}));
  server.post('/password', { config: { access: 'public', rateLimit: 'password' } }, async () => ({}));
  server.post('/open', { config: { access: 'public' } }, async () => ({}));
  await server.ready();
  const signIn = (remoteAddress: string, email?: string, url = '/sign-in') =>
    server.inject({ method: 'POST', url, remoteAddress, ...(email === undefined ? {} : { payload: { email } }) });

  it('is limited by the address of the client', async () => {
    await refill();
    for (let index = 0; index < rates.signInAddress.burst; index++)
      assert.equal((await signIn('203.0.113.1', `${index}@example.test`)).statusCode, 200);
    const refused = await signIn('203.0.113.1', 'new@example.test');
    assert.equal(refused.statusCode, 429);
    assert.equal((await signIn('203.0.113.2', 'new@example.test')).statusCode, 200);
    assert.equal((await signIn('203.0.113.1', undefined, '/open')).statusCode, 200);
  });

  it('is limited by the e-mail address of the body, however it is written, for each client by itself', async () => {
    await refill();
    for (let index = 0; index < rates.signInEmail.burst; index++)
      assert.equal((await signIn('203.0.113.77', index === 1 ? 'A@Example.test' : 'a@example.test')).statusCode, 200);
    const refused = await signIn('203.0.113.77', 'a@EXAMPLE.test');
    assert.deepEqual(
      [refused.statusCode, refused.headers['ratelimit-limit'], refused.headers['ratelimit-remaining']],
      [429, '3', '0'],
    );
    // The limit of an e-mail address applies to each client separately, so a stranger's attempts do not lock out the
    // account's owner, who uses another client.
    assert.equal((await signIn('203.0.113.78', 'a@example.test')).statusCode, 200);
    const names = await db.selectFrom('rate_buckets').select('key').execute();
    assert(!JSON.stringify(names).includes('example'), 'no address is in clear text');
  });

  it('for passwords is limited by the e-mail address for all clients together, but not for known browsers', async () => {
    await refill();
    const guess = (client: number, cookie?: string, email = 'a@example.test') =>
      server.inject({
        method: 'POST',
        url: '/password',
        remoteAddress: `203.0.113.${client}`,
        payload: { email },
        ...(cookie === undefined ? {} : { headers: { cookie } }),
      });
    const { secret } = bed.plane.app.config;
    const deviceOf = (email: string) => writeDeviceCookie(email, secret, false).split(';')[0] ?? '';
    const known = deviceOf('A@example.test');
    for (let client = 0; client < rates.signInUnknown.burst; client++) {
      const answer = await guess(client, client % 2 === 0 ? deviceOf('b@example.test') : `${known}x`);
      assert.equal(answer.statusCode, 200, 'the cookie of another address, or a forged one, is worth nothing');
    }
    const refused = await guess(100);
    assert.equal(refused.statusCode, 429);
    assert.match(refused.json().detail, /from browsers that never signed in/);
    assert.equal((await guess(100, undefined, 'b@example.test')).statusCode, 200, 'another address has its own');
    for (let index = 0; index < rates.signInEmail.burst; index++)
      assert.equal((await guess(101 + index, known)).statusCode, 200, 'the owner gets in');
    assert.equal((await guess(110, known)).statusCode, 429, 'a stolen device cookie guesses no faster');
    const names = await db.selectFrom('rate_buckets').select('key').execute();
    assert(!JSON.stringify(names).includes('example'), 'no address is in clear text');
  });

  it('counts a network of IPv6 as one client', () => {
    assert.equal(addressKey('2001:db8:1:2:3:4:5:6'), addressKey('2001:db8:1:2::9'));
    assert.notEqual(addressKey('2001:db8:1:2::9'), addressKey('2001:db8:1:3::9'));
    assert.equal(addressKey('::1'), 'sign-in-address:0:0:0:0');
    assert.equal(addressKey('::ffff:203.0.113.1'), 'sign-in-address:::ffff:203.0.113.1');
  });
});
