// Tests the deletion of an account: no credential of it works any more, its e-mail address is free for another account,
// and its ledger and its activity feed stay.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe, it } from 'node:test';
import type { AccountDetails, NewAccount } from '@sandbar/contract/admin.ts';
import { sql } from 'kysely';
import { insertKey } from '../src/api-keys/store.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { callAdmin } from './support/admin.ts';
import { FakeTerminals } from './support/fake-terminals.ts';
import { portClient } from './support/port-client.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { connect, refusal } from './support/terminal-client.ts';
import { cookieOf, startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

// The spend guard and the reclaimer remove what a deleted account had. They run only when a test asks for it.
const bed = await startTestBed({ replicas: 2, timing: { guardMs: 3_600_000, reclaimMs: 3_600_000 } });
let signals = 0;
for (const { app } of bed.replicas) {
  app.reconcileSoon = () => {
    signals++;
  };
}
const { api, host, plane } = bed;
const [, second = plane] = bed.replicas;
const { db } = plane.app;
new FakeTerminals(host);
const programs = new Programs(host);
const admin = <T = { code: string }>(path: string, body?: object) =>
  callAdmin<T>(plane.app.config.adminSocket, `/admin/accounts${path}`, body);
const remove = (id: string) => admin<AccountDetails & { code: string }>(`/${id}/delete`, {});

let made = 0;
/** Makes an account with a machine, a session, a terminal ticket, a port's token and an idempotency key. */
async function makeAccount() {
  const email = `holder-${++made}@example.test`;
  const { json } = await admin<NewAccount>('', { email, tier: 'enterprise' });
  const { account_id: id, api_key: key, password } = json;
  const signedIn = await api('POST', '/v1/auth/sign-in', { key: null, body: { email, password } });
  const session = { key: null, headers: { cookie: cookieOf(signedIn.headers), origin: TEST_ORIGIN } };
  const idempotent = { 'idempotency-key': 'once' };
  const machine: string = (await api('POST', '/v1/machines', { key, headers: idempotent })).json.id;
  await programs.serve(machine, 8000, (_request, response) => response.end('answered'));
  const path = `/v1/machines/${machine}`;
  const ticket: string = (await api('POST', `${path}/terminal-session`, { key })).json.ticket;
  const token: string = (await api('POST', `${path}/ports/8000/token`, session)).json.token;
  return { id, key, email, password, session, machine, ticket, token };
}

const TABLES = ['api_keys', 'sessions', 'credentials', 'terminal_tickets', 'idempotency_keys'] as const;
const rowsOf = async (id: string) => {
  const counts = TABLES.map((table) =>
    db
      .selectFrom(table)
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('account_id', '=', id)
      .executeTakeFirstOrThrow(),
  );
  return (await Promise.all(counts)).map(({ count }) => count);
};

describe('a deleted account', () => {
  it('has no key, session, credential, ticket and idempotency key any more, and each of them is 401', async () => {
    const { id, key, email, password, session, machine, ticket, token } = await makeAccount();
    const ports = portClient(bed, machine);
    assert((await rowsOf(id)).every((count) => count > 0));
    const { status, json } = await remove(id);
    assert.equal(status, 200);
    assert(json.deleted_at !== null && Number.isFinite(Date.parse(json.deleted_at)));
    assert.deepEqual(
      await rowsOf(id),
      TABLES.map(() => 0),
    );
    for (const options of [{ key }, session, { key, plane: second }, { ...session, plane: second }]) {
      assert.equal((await api('GET', '/v1/account', options)).status, 401);
      assert.equal((await api('POST', '/v1/machines', options)).status, 401);
    }
    assert.equal((await api('POST', '/v1/auth/sign-in', { key: null, body: { email, password } })).status, 401);
    assert.equal((await refusal(plane, machine, ticket)).status, 401);
    for (const headers of [{ 'x-sandbar-key': token }, { 'x-sandbar-key': key }]) {
      assert.equal((await ports.fetchText(8000, { headers })).status, 401);
    }
  });

  it('serves no public port', async () => {
    const { id, key, machine } = await makeAccount();
    const ports = portClient(bed, machine);
    await api('PUT', `/v1/machines/${machine}/ports/8000`, { key, body: { access: 'public' } });
    const headers = { 'x-sandbar-key': bed.keys.other };
    assert.equal((await ports.fetchText(8000, { headers })).status, 200);
    await remove(id);
    assert.equal((await ports.fetchText(8000, { headers })).status, 404);
  });

  it('ends its open terminals', async () => {
    const { id, machine, ticket } = await makeAccount();
    const client = await connect(plane, machine, ticket);
    after(() => client.socket.terminate());
    await remove(id);
    assert.equal((await client.ends()).code, 4401);
  });

  it('cannot be used with a key or a session that a parallel request added', async () => {
    const { id, session } = await makeAccount();
    const { created_at, ...row } = await db
      .selectFrom('sessions')
      .selectAll()
      .where('account_id', '=', id)
      .executeTakeFirstOrThrow();
    await remove(id);
    await db.insertInto('sessions').values(row).execute();
    const late = await insertKey(db, id, 'full', 'late');
    assert.equal((await api('GET', '/v1/account', { key: late })).status, 401);
    assert.equal((await api('GET', '/v1/account', session)).status, 401);
  });

  it('has freed its e-mail address, name and picture', async () => {
    const { id, email } = await makeAccount();
    await db.updateTable('accounts').set({ name: 'Ada', image: 'a.png' }).where('id', '=', id).execute();
    await remove(id);
    const row = db.selectFrom('accounts').select(['email', 'name', 'image']).where('id', '=', id);
    const kept = await row.executeTakeFirstOrThrow();
    assert.match(kept.email, /^[0-9a-f-]{36}@deleted\.invalid$/);
    assert.deepEqual([kept.name, kept.image], ['', null]);
    const { status, json } = await admin<NewAccount>('', { email });
    assert.equal(status, 200);
    assert.notEqual(json.account_id, id);
    assert.equal((await api('GET', '/v1/account', { key: json.api_key })).json.email, email);
  });

  it('cannot prevent its deletion by an account with an address that is made of its id', async () => {
    const { id } = await makeAccount();
    assert.equal((await admin<NewAccount>('', { email: `${id}@deleted.invalid` })).status, 200);
    assert.equal((await remove(id)).status, 200);
  });

  it('keeps its ledger, its activity feed and its balance', async () => {
    const { id } = await makeAccount();
    await inTransaction(db, (tx) => addEntry(tx, { accountId: id, kind: 'top-up', amountMicros: 5, note: '' }));
    const count = async () => {
      const { rows } = await sql<{ ledger: number; activity: number }>`
        select (select count(*) from ledger where account_id = ${id})::int as ledger,
          (select count(*) from activity where account_id = ${id})::int as activity`.execute(db);
      return rows[0];
    };
    const before = await count();
    assert(before && before.ledger === 1 && before.activity > 0);
    await remove(id);
    const { ledger, activity } = (await count()) ?? assert.fail();
    assert(ledger >= before.ledger && activity >= before.activity);
    const { json } = await admin<AccountDetails>(`/${id}`);
    assert.deepEqual([json.balance, json.is_owner], ['0.000005', false]);
  });

  it('loses its machines, snapshots and volumes at once, each with an entry in its activity feed', async () => {
    const { id, key, machine } = await makeAccount();
    assert.equal((await api('POST', `/v1/machines/${machine}/snapshots`, { key })).status, 201);
    assert.equal((await api('POST', '/v1/volumes', { key, body: { size_gb: 5 } })).status, 201);
    const before = signals;
    await remove(id);
    assert.equal(signals, before + 1);
    const left = async () => {
      const { rows } = await sql<{ left: number }>`
        select (select count(*) from machines where account_id = ${id} and state <> 'destroyed')
          + (select count(*) from volumes where account_id = ${id})
          + (select count(*) from snapshots where account_id = ${id}) as left`.execute(db);
      return rows[0]?.left;
    };
    assert.equal(await left(), 3);
    await until(async () => {
      await plane.reconciler.runOnce();
      return (await left()) === 0;
    }, 'nothing is left');
    const actions = await db
      .selectFrom('activity')
      .select('action')
      .where('account_id', '=', id)
      .where('actor', '=', 'system:operator')
      .execute();
    assert.deepEqual(
      actions
        .map(({ action }) => action)
        .filter((action) => action !== 'machine.stopped')
        .sort(),
      ['machine.destroyed', 'snapshot.deleted', 'volume.deleted'],
    );
  });

  it('stays in the list of accounts, and deleting it again changes nothing', async () => {
    const { id } = await makeAccount();
    const { json } = await remove(id);
    const again = await remove(id);
    assert.deepEqual([again.status, again.json.deleted_at], [200, json.deleted_at]);
    const { accounts } = (await admin<{ accounts: AccountDetails[] }>('')).json;
    assert.equal(accounts.find((account) => account.id === id)?.deleted_at, json.deleted_at);
  });

  it('can be credited and corrected, but not changed otherwise', async () => {
    const { id } = await makeAccount();
    await remove(id);
    const bodies = { suspend: {}, resume: {}, tier: { tier: 'payg' }, limits: { vcpus: 1 }, password: {}, keys: {} };
    for (const [action, body] of Object.entries(bodies)) {
      const { status, json } = await admin(`/${id}/${action}`, body);
      assert.deepEqual([status, json.code], [409, 'conflict'], action);
    }
    assert.deepEqual(
      await rowsOf(id),
      TABLES.map(() => 0),
    );
    const credited = await admin<AccountDetails>(`/${id}/credit`, { eur: '-1', as: 'correction' });
    assert.deepEqual([credited.status, credited.json.balance], [200, '-1.000000']);
  });
});

describe('account delete', () => {
  it('is refused for the account of the owner of the service, and for an absent one', async () => {
    const { json } = await callAdmin<NewAccount>(plane.app.config.adminSocket, '/admin/bootstrap', {
      email: 'first@example.test',
    });
    const { status, json: answer } = await remove(json.account_id);
    assert.deepEqual([status, answer.code], [409, 'conflict']);
    assert.equal((await api('GET', '/v1/account', { key: json.api_key })).status, 200);
    assert.equal((await remove(randomUUID())).status, 404);
  });

  it('deletes a suspended account too', async () => {
    const { id, key } = await makeAccount();
    await admin(`/${id}/suspend`, {});
    assert.equal((await remove(id)).status, 200);
    assert.equal((await api('GET', '/v1/account', { key })).status, 401);
  });

  it('is not deadlocked by parallel changes of the account', async () => {
    for (let round = 0; round < 5; round++) {
      const { id, key, session } = await makeAccount();
      const changes = [
        ...Array.from({ length: 4 }, () => api('POST', '/v1/machines', { key })),
        ...Array.from({ length: 4 }, (_, index) =>
          api('POST', '/v1/api-keys', { ...session, body: { name: `k${index}`, scope: 'full' } }),
        ),
        admin(`/${id}/password`, {}),
        admin(`/${id}/credit`, { eur: '1', as: 'bonus' }),
      ];
      const removed = await remove(id);
      assert.equal(removed.status, 200);
      for (const { status, json } of await Promise.all(changes)) assert(status < 500, JSON.stringify(json));
    }
  });
});
