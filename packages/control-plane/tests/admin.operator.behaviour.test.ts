// Tests of the operator's routes for the dashboard: what they do. Who may use them is tested by
// operators.behaviour.test.ts and authorisation.behaviour.test.ts.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import pg from 'pg';
import { callAdmin } from './support/admin.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { leaveOperation } from './support/operations.ts';
import { until } from './support/postgres.ts';
import { cookieOf, startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

const bed = await startTestBed({ host: { subnet: '10.84.0.0/16' } });
const { api, plane, keys, accountId } = bed;
const { db } = plane.app;
const cookie = await bed.session();
const call = (method: string, path: string, body?: object) =>
  api(method, path, { key: null, headers: { cookie, origin: TEST_ORIGIN }, ...(body ? { body } : {}) });
await db.updateTable('accounts').set({ is_owner: true }).where('id', '=', accountId).execute();
const setOperator = (account: string, is_operator: boolean) =>
  callAdmin(plane.app.config.adminSocket, `/admin/accounts/${account}/operator`, { is_operator });
const otherId = async () =>
  (await db.selectFrom('accounts').select('id').where('email', '=', 'other@example.test').executeTakeFirstOrThrow()).id;
const expectRefusal = (answer: { status: number; json: { code?: unknown } }, status: number, code: string) =>
  assert.deepEqual([answer.status, answer.json.code], [status, code]);

describe('accounts', () => {
  it('are made with a key and a password that work, and are listed', async () => {
    const made = await call('POST', '/admin/v1/accounts', { email: 'New@example.test', credit_eur: '5' });
    assert.equal(made.status, 201);
    assert.equal((await api('GET', '/v1/machines', { key: made.json.api_key })).status, 200);
    const { email, password } = made.json;
    const signIn = await api('POST', '/v1/auth/sign-in', { key: null, body: { email, password } });
    assert.equal(signIn.status, 200);
    const headers = { cookie: cookieOf(signIn.headers), origin: TEST_ORIGIN };
    expectRefusal(await api('POST', '/admin/v1/accounts', { key: null, headers, body: { email } }), 403, 'forbidden');
    const { accounts } = (await call('GET', '/admin/v1/accounts')).json;
    const row = accounts.find((account: { email: string }) => account.email === 'new@example.test');
    assert.deepEqual([row.balance, row.billing_mode], ['5.000000', 'prepaid']);
    expectRefusal(await call('POST', '/admin/v1/accounts', { email: 'new@example.test' }), 409, 'conflict');
  });

  it('are found by id only', async () => {
    expectRefusal(await call('GET', '/admin/v1/accounts/new@example.test'), 404, 'not_found');
    expectRefusal(await call('GET', `/admin/v1/accounts/${randomUUID()}`), 404, 'not_found');
    assert.equal((await call('GET', `/admin/v1/accounts/${accountId}`)).json.id, accountId);
  });

  it('are credited once for a reference', async () => {
    const body = { eur: '12.5', as: 'top-up', reference: 'transfer-1' };
    const path = `/admin/v1/accounts/${accountId}/credit`;
    const answers = [await call('POST', path, body), await call('POST', path, body)];
    assert.deepEqual(
      answers.map(({ json }) => [json.is_new, json.balance]),
      [
        [true, '12.500000'],
        [false, '12.500000'],
      ],
    );
    expectRefusal(await call('POST', path, { ...body, eur: '13' }), 409, 'conflict');
  });

  it('get a tier and limits, and lose an override by null', async () => {
    const path = `/admin/v1/accounts/${await otherId()}`;
    assert.equal((await call('POST', `${path}/tier`, { tier: 'payg' })).json.tier, 'payg');
    const set = await call('POST', `${path}/limits`, { machines: 7, rate_exec: 3 });
    assert.deepEqual(set.json.limits.machines, { limit: 7, override: 7 });
    assert.equal(set.json.rates.exec.override, 3);
    const removed = await call('POST', `${path}/limits`, { machines: null, rate_exec: null });
    assert.deepEqual(removed.json.limits.machines, { limit: 20, override: null });
    expectRefusal(await call('POST', `${path}/limits`, { machines: -1 }), 400, 'validation_error');
  });

  it('are suspended and resumed, except the first', async () => {
    const id = await otherId();
    assert.notEqual((await call('POST', `/admin/v1/accounts/${id}/suspend`)).json.suspended_at, null);
    expectRefusal(await api('POST', '/v1/machines', { key: keys.other }), 403, 'forbidden');
    assert.equal((await call('POST', `/admin/v1/accounts/${id}/resume`)).json.suspended_at, null);
    expectRefusal(await call('POST', `/admin/v1/accounts/${accountId}/suspend`), 409, 'conflict');
  });
});

describe('a password that an operator resets', () => {
  const signIn = (password: string) =>
    api('POST', '/v1/auth/sign-in', { key: null, body: { email: 'other@example.test', password } });

  it('is shown once, works, and replaces the old one', async () => {
    const first = await call('POST', `/admin/v1/accounts/${await otherId()}/password`);
    assert.equal(first.status, 200);
    assert.equal((await signIn(first.json.password)).status, 200);
    const second = await call('POST', `/admin/v1/accounts/${await otherId()}/password`);
    assert.equal((await signIn(first.json.password)).status, 401);
    assert.equal((await signIn(second.json.password)).status, 200);
  });

  it('is not that of an operator, whose account another operator could take over', async () => {
    const id = await otherId();
    await setOperator(id, true);
    const answer = await call('POST', `/admin/v1/accounts/${id}/password`);
    expectRefusal(answer, 409, 'conflict');
    assert.match(answer.json.detail, /sandbar admin account/);
    await setOperator(id, false);
    expectRefusal(await call('POST', `/admin/v1/accounts/${accountId}/password`), 409, 'conflict');
  });
});

describe('the account of an operator', () => {
  const CHANGES = [
    ['tier', { tier: 'payg' }],
    ['limits', { machines: 1, rate_mutating: 1 }],
    ['suspend', undefined],
    ['resume', undefined],
    ['password', undefined],
  ] as const;

  it('is changed by no operator over HTTP, also not the own account, and can be credited', async () => {
    const id = await otherId();
    await setOperator(id, true);
    const row = () => db.selectFrom('accounts').selectAll().where('id', 'in', [id, accountId]).execute();
    const before = await row();
    for (const account of [id, accountId]) {
      for (const [change, body] of CHANGES) {
        const answer = await call('POST', `/admin/v1/accounts/${account}/${change}`, body);
        expectRefusal(answer, 409, 'conflict');
        assert.match(answer.json.detail, /on the computer of the service/);
      }
    }
    assert.deepEqual(await row(), before);
    const credit = { eur: '1', as: 'top-up', reference: 'for an operator' };
    assert.equal((await call('POST', `/admin/v1/accounts/${id}/credit`, credit)).status, 200);
    await setOperator(id, false);
  });

  it('is protected from the moment when it is named, also from a request that began before', async () => {
    const id = await otherId();
    for (const [change, body] of CHANGES) {
      const naming = new pg.Client({ connectionString: bed.databaseUrl });
      await naming.connect();
      try {
        await naming.query('begin');
        await naming.query('update accounts set is_operator = true where id = $1', [id]);
        let isAnswered = false;
        const answer = call('POST', `/admin/v1/accounts/${id}/${change}`, body).finally(() => {
          isAnswered = true;
        });
        const waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        const isWaiting = async () => isAnswered || (await naming.query(waiting)).rowCount === 1;
        await until(isWaiting, 'the request waits for the account', 60_000);
        await naming.query('commit');
        expectRefusal(await answer, 409, 'conflict');
      } finally {
        await naming.end();
        await setOperator(id, false);
      }
    }
  });
});

describe('hosts', () => {
  it('are listed, drained and undrained', async () => {
    const { hosts } = (await call('GET', '/admin/v1/hosts')).json;
    assert.deepEqual(
      hosts.map((host: { id: string; state: string }) => [host.id, host.state]),
      [[FAKE_HOST_ID, 'ready']],
    );
    assert.equal((await call('POST', `/admin/v1/hosts/${FAKE_HOST_ID}/drain`)).json.state, 'draining');
    expectRefusal(await api('POST', '/v1/machines'), 503, 'fleet_capacity');
    assert.equal((await call('POST', `/admin/v1/hosts/${FAKE_HOST_ID}/undrain`)).json.state, 'ready');
  });
});

describe('join tokens', () => {
  it('are made, listed without their text, and revoked', async () => {
    const made = await call('POST', '/admin/v1/host-tokens', { expires_in_sec: 600 });
    assert.equal(made.status, 201);
    const { id, token } = made.json;
    const list = await call('GET', '/admin/v1/host-tokens');
    assert.deepEqual(
      list.json.tokens.map((one: { id: string }) => one.id),
      [id],
    );
    assert(!list.text.includes(token));
    assert.equal((await call('DELETE', `/admin/v1/host-tokens/${id}`)).status, 204);
    expectRefusal(await call('DELETE', `/admin/v1/host-tokens/${id}`), 404, 'not_found');
    assert.deepEqual((await call('GET', '/admin/v1/host-tokens')).json.tokens, []);
  });
});

describe('health', () => {
  it('says what the audit finds, also to parallel requests', async () => {
    const answers = await Promise.all(Array.from({ length: 4 }, () => call('GET', '/admin/v1/audit')));
    for (const { status, json } of answers)
      assert.deepEqual([status, json.findings, json.looked_at.hosts], [200, [], 1]);
  });

  it('lists an operation that is tried again after a failure, and none that goes well', async () => {
    const machine = (await api('POST', '/v1/machines')).json;
    assert.deepEqual((await call('GET', '/admin/v1/failed-operations')).json.operations, []);
    await plane.reconciler.stop();
    await leaveOperation(db, machine.id, { kind: 'stop' });
    await db
      .updateTable('operations')
      .set({ last_error: 'The host does not answer.', error_code: 'host_unavailable', attempts: 2 })
      .where('machine_id', '=', machine.id)
      .where('finished_at', 'is', null)
      .execute();
    const { operations } = (await call('GET', '/admin/v1/failed-operations')).json;
    assert.deepEqual(
      operations.map((one: Record<string, unknown>) => [one.kind, one.machine_id, one.email, one.code, one.error]),
      [['stop', machine.id, 'owner@example.test', 'host_unavailable', 'The host does not answer.']],
    );
  });
});
