// Tests of the admin socket, the health check and the metrics, and that no secret is ever logged.
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { describe, it } from 'node:test';
import { insertAccount } from '../src/accounts/store.ts';
import { callAdmin } from './support/admin.ts';
import { startPostgres } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ host: { subnet: '10.83.0.0/16' } });
const { api, plane } = bed;
const socket = plane.app.config.adminSocket;
const admin = (path: string, body: object) => callAdmin(socket, path, body);
const get = (path: string) => fetch(`http://127.0.0.1:${plane.metricsAddress.port}${path}`);

describe('the admin socket', () => {
  it('is for its owner only', () => {
    assert.equal(statSync(socket).mode & 0o777, 0o600);
  });

  it('bootstrap makes the first account once, also when asked many times at once', async () => {
    const { db } = plane.app;
    await db.deleteFrom('api_keys').execute();
    await db.deleteFrom('accounts').execute();
    // This account signed up before the bootstrap, but the bootstrap must not make it the owner.
    await insertAccount(db, { email: 'early@example.test', tier: 'free' });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => admin('/admin/bootstrap', { email: 'owner@localhost' })),
    );
    const keys = answers.map((answer) => answer.json.api_key).filter((key) => key !== null);
    assert.equal(keys.length, 1);
    assert.equal(new Set(answers.map((answer) => answer.json.account_id)).size, 1);
    assert.equal((await api('POST', '/v1/machines', { key: String(keys[0]) })).status, 201);
    const account = await db.selectFrom('accounts').selectAll().where('is_owner', '=', true).executeTakeFirstOrThrow();
    assert.deepEqual(
      [account.tier, account.billing_mode, account.email],
      ['enterprise', 'unmetered', 'owner@localhost'],
    );
    bed.accountId = account.id;
  });

  it('makes accounts and keys, and refuses what is wrong with them', async () => {
    const made = await admin('/admin/accounts', { email: 'new@example.test', tier: 'payg' });
    assert.equal((await api('GET', '/v1/machines', { key: String(made.json.api_key) })).status, 200);
    const again = await admin('/admin/accounts', { email: 'NEW@example.test' });
    assert.deepEqual([again.status, again.json.code], [409, 'conflict']);
    const read = await admin('/admin/api-keys', { account_id: made.json.account_id, scope: 'read', name: 'r' });
    assert.equal((await api('POST', '/v1/machines', { key: String(read.json.api_key) })).status, 403);
    const stranger = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';
    assert.equal((await admin('/admin/api-keys', { account_id: stranger, scope: 'read', name: 'r' })).status, 404);
    assert.equal((await admin('/admin/api-keys', { account_id: stranger, scope: 'all', name: 'r' })).status, 400);
    assert.equal((await admin('/admin/bootstrap', { email: 'no address' })).status, 400);
  });

  it('stop-all stops every running machine and counts those that failed', async () => {
    const made = await admin('/admin/api-keys', { account_id: bed.accountId, scope: 'full', name: 'stop-all' });
    const key = String(made.json.api_key);
    for (let index = 0; index < 10; index++) await api('POST', '/v1/machines', { key });
    bed.host.fault('ensure', 'fail', 1);
    assert.deepEqual((await admin('/admin/machines/stop-all', {})).json, { stopped: 10, failed: 1 });
    assert.equal((await admin('/admin/machines/stop-all', {})).status, 200);
    await checkBooks(bed);
  });
});

describe('health and metrics', () => {
  it('say what is', async () => {
    assert.deepEqual(await (await get('/healthz')).json(), { status: 'ok' });
    const ready = await get('/readyz');
    assert.deepEqual(
      [ready.status, await ready.json()],
      [200, { ready: true, checks: { database: 'ok', host: 'ok' } }],
    );
    const metrics = await get('/metrics');
    assert.equal(metrics.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    const text = await metrics.text();
    assert.match(text, /^# HELP sandbar_machines \S.*\n# TYPE sandbar_machines gauge$/m);
    assert.match(text, /^# HELP sandbar_http_requests_total \S.*\n# TYPE sandbar_http_requests_total counter$/m);
    assert.match(text, /^sandbar_machines\{state="stopped"\} \d+$/m);
    assert.match(text, /^sandbar_http_requests_total\{method="POST",route="\/v1\/machines",status="201"\} \d+$/m);
    assert.match(text, /^sandbar_process_resident_memory_bytes \d+$/m);
    assert.equal((await get('/nothing')).status, 404);
  });

  it('a replica counts its own requests only', async () => {
    const replica = await bed.addReplica();
    const text = await (await fetch(`http://127.0.0.1:${replica.metricsAddress.port}/metrics`)).text();
    assert.doesNotMatch(text, /^sandbar_http_requests_total\{/m);
    assert.match(text, /^sandbar_machines\{state="stopped"\} \d+$/m);
  });

  it('not ready while the host is away', async () => {
    await bed.host.away();
    const ready = await get('/readyz');
    assert.equal(ready.status, 503);
    assert.deepEqual(await ready.json(), { ready: false, checks: { database: 'ok', host: 'failed' } });
    await bed.host.listen();
  });
});

describe('the log', () => {
  it('holds no key, script, argument, environment, input, output, metadata or query', async () => {
    const secrets = [
      's3cret-cmd',
      's3cret-argv',
      's3cret-env',
      's3cret-cwd',
      's3cret-meta',
      's3cret-query',
      's3cret-out',
    ];
    const own = await startPostgres();
    const other = await startTestBed({ postgres: own });
    const stdin = Buffer.from('s3cret-stdin').toString('base64');
    const call = other.api;
    const { id } = (await call('POST', '/v1/machines', { body: { metadata: { a: 's3cret-meta' } } })).json;
    const path = `/v1/machines/${id}/execs`;
    const env = { A: 's3cret-env' };
    const job = (await call('POST', path, { body: { command: 'print s3cret-out s3cret-cmd', env, stdin } })).json.id;
    await call('POST', path, { body: { argv: ['s3cret-argv'], env, cwd: '/s3cret-cwd' } });
    await call('POST', path, { body: { argv: ['s3cret-argv'], command: 's3cret-cmd', env } });
    await call('GET', `/v1/machines?name=s3cret-query&nonsense=s3cret-query`);
    await call('GET', '/v1/s3cret-query?x=s3cret-query');
    await call('GET', `${path}/${job}/output`);
    other.host.fault('startJob', 'fail', 1);
    await call('POST', path, { body: { command: 's3cret-cmd', env, stdin } });
    await own.stop();
    await call('POST', '/v1/machines', { body: { name: 's3cret-meta', metadata: { a: 's3cret-meta' } } });
    await call('POST', path, { body: { command: 's3cret-cmd', env, stdin } });
    const log = other.logged();
    assert.match(log, /"route":"\/v1\/machines\/:id\/execs"/);
    assert.match(log, /the database does not answer/);
    for (const secret of [...secrets, 's3cret', stdin, ...Object.values(other.keys), 'Bearer']) {
      assert(!log.includes(secret), `${secret} is in the log`);
    }
    for (const line of log.trim().split('\n')) assert.equal(typeof JSON.parse(line).level, 'number');
  });
});
