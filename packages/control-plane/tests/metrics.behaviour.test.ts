// Tests of what the metrics say: each request, job, operation and stream is counted where docs/metrics.md says, and
// what comes from the database is the same on every replica.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import type { ControlPlane } from '../src/control-plane.ts';
import { openStream } from './support/event-stream.ts';
import { startPostgres, until } from './support/postgres.ts';
import { startTestBed, TEST_PASSWORD } from './support/test-bed.ts';

const SLOW = { perSec: 0.001, burst: 1 };
const bed = await startTestBed({ host: { pool: { ready: 3, target: 8 } } });
// All beds begin here: the first that ends takes the PostgreSQL server with it that they share.
const limited = await startTestBed({
  config: { rates: { ...bed.plane.app.config.rates, mutating: SLOW, signInEmail: SLOW } },
});
// Nobody is charged in this bed, so its account falls behind.
const billed = await startTestBed({ timing: { chargeMs: 3_600_000 } });
const postgres = await startPostgres();
const cutOff = await startTestBed({ postgres });
const { api, host, plane } = bed;
const { db } = plane.app;

async function scrape({ metricsAddress }: ControlPlane = plane): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${metricsAddress.port}/metrics`);
  assert.equal(response.status, 200);
  return response.text();
}

/** The value of a series, such as `sandbar_hosts{state="active"}`; undefined when there is none. */
function valueIn(text: string, series: string): number | undefined {
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

const read = async (series: string, on?: ControlPlane) => valueIn(await scrape(on), series);

/** Reads a series whose values come from the database until it has this value: scrapes share answers for 5 s. */
const reaches = (series: string, value: number) =>
  until(async () => (await read(series)) === value, `${series} is ${value}`, 15_000);

async function createMachine(): Promise<string> {
  const { status, json } = await api('POST', '/v1/machines', { body: {} });
  assert.equal(status, 201);
  return json.id;
}

describe('what a replica counts', () => {
  it('creates, by the way in which the host says that it started the machine', async () => {
    host.startPath = 'pool';
    await createMachine();
    host.startPath = 'cold';
    await createMachine();
    host.startPath = undefined;
    await createMachine();
    const text = await scrape();
    for (const path of ['pool', 'cold', 'unknown']) {
      assert.equal(valueIn(text, `sandbar_machine_create_duration_seconds_count{path="${path}"}`), 1, path);
    }
  });

  it('no replay of a create', async () => {
    const before = await read('sandbar_machine_create_duration_seconds_count{path="unknown"}');
    const headers = { 'idempotency-key': randomUUID() };
    for (const status of [201, 200]) {
      assert.equal((await api('POST', '/v1/machines', { body: {}, headers })).status, status);
    }
    const after = await read('sandbar_machine_create_duration_seconds_count{path="unknown"}');
    assert.equal(after, (before ?? 0) + 1);
  });

  it('jobs and the bytes of their output', async () => {
    const path = `/v1/machines/${await createMachine()}/execs`;
    const started = await api('POST', `${path}?wait_ms=30000`, { body: { command: 'print hello' } });
    assert.equal(started.json.exit_code, 0);
    const bytes = Buffer.from(started.json.output.stdout.data, 'base64').length;
    assert.equal(await read('sandbar_exec_starts_total{outcome="started"}'), 1);
    assert.equal(await read('sandbar_exec_start_duration_seconds_count'), 1);
    assert.equal(await read('sandbar_exec_output_bytes_total{form="page"}'), bytes);

    await api('GET', `${path}/${started.json.id}/output?offset=1`);
    assert.equal(await read('sandbar_exec_output_bytes_total{form="page"}'), 2 * bytes - 1);

    const authorization = `Bearer ${bed.keys.full}`;
    const stream = await openStream(plane, `${path}/${started.json.id}/output`, { authorization });
    await stream.ended;
    assert.equal(await read('sandbar_exec_output_bytes_total{form="events"}'), bytes);

    host.fault('startJob', 'fail', 1);
    await api('POST', path, { body: { command: 'true' } });
    assert.equal(await read('sandbar_exec_starts_total{outcome="failed"}'), 1);
  });

  it('streams while they are open', async () => {
    const path = `/v1/machines/${await createMachine()}/execs`;
    const { json } = await api('POST', path, { body: { command: 'sleep' } });
    const authorization = `Bearer ${bed.keys.full}`;
    const stream = await openStream(plane, `${path}/${json.id}/output`, { authorization });
    assert.equal(await read('sandbar_streams_open{kind="event"}'), 1);
    stream.close();
    await until(async () => (await read('sandbar_streams_open{kind="event"}')) === 0, 'the stream is closed');
  });

  it('errors by code', async () => {
    const before = (await read('sandbar_http_errors_total{code="not_found"}')) ?? 0;
    await api('GET', `/v1/machines/${randomUUID()}`);
    await api('GET', '/v1/machines', { key: 'sk_wrong' });
    const text = await scrape();
    assert.equal(valueIn(text, 'sandbar_http_errors_total{code="not_found"}'), before + 1);
    assert.equal(valueIn(text, 'sandbar_http_errors_total{code="unauthenticated"}'), 1);
  });

  it('operations: begun, finished, refused, and attempts that failed', async () => {
    const counts = async () => {
      const text = await scrape();
      return {
        started: valueIn(text, 'sandbar_operations_started_total{kind="stop"}') ?? 0,
        done: valueIn(text, 'sandbar_operations_finished_total{kind="stop",outcome="done"}') ?? 0,
        failed: valueIn(text, 'sandbar_operation_failed_attempts_total{kind="stop"}') ?? 0,
        refusedCreates: valueIn(text, 'sandbar_operations_finished_total{kind="create",outcome="refused"}') ?? 0,
      };
    };
    const id = await createMachine();
    host.fault('ensure', 'fail', 1);
    assert.notEqual((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
    await until(async () => (await counts()).done === 1, 'the reconciler finished the stop');
    assert.deepEqual(await counts(), { started: 1, done: 1, failed: 1, refusedCreates: 0 });
    host.fault('ensure', 'fail', 1);
    assert.notEqual((await api('POST', '/v1/machines', { body: {} })).status, 201);
    await until(async () => (await counts()).refusedCreates === 1, 'the create was undone');
  });

  it('sign-ins, accepted and refused', async () => {
    await bed.session();
    const body = { email: 'owner@example.test', password: `not ${TEST_PASSWORD}` };
    assert.equal((await api('POST', '/v1/auth/sign-in', { key: null, body })).status, 401);
    const text = await scrape();
    assert.equal(valueIn(text, 'sandbar_sign_ins_total{outcome="accepted"}'), 1);
    assert.equal(valueIn(text, 'sandbar_sign_ins_total{outcome="refused"}'), 1);
  });

  it('connections to the database, and statements that failed', async () => {
    const before = (await read('sandbar_database_query_errors_total{reason="other"}')) ?? 0;
    await assert.rejects(sql`select no_such_column`.execute(db));
    const text = await scrape();
    assert.equal(valueIn(text, 'sandbar_database_query_errors_total{reason="other"}'), before + 1);
    assert.equal(valueIn(text, 'sandbar_database_pool_max_connections'), 16);
    const open = ['idle', 'in_use'].map((state) =>
      valueIn(text, `sandbar_database_pool_connections{state="${state}"}`),
    );
    assert.ok((open[0] ?? 0) + (open[1] ?? 0) >= 1, String(open));
  });
});

describe('rate limits', () => {
  it('are counted by the limit that was used up', async () => {
    for (const status of [201, 429, 429]) {
      assert.equal((await limited.api('POST', '/v1/machines', { body: {} })).status, status);
    }
    const body = { email: 'owner@example.test', password: 'wrong' };
    for (const status of [401, 429]) {
      assert.equal((await limited.api('POST', '/v1/auth/sign-in', { key: null, body })).status, status);
    }
    assert.equal(await read('sandbar_http_rate_limited_total{limit="mutating"}', limited.plane), 2);
    assert.equal(await read('sandbar_http_rate_limited_total{limit="sign_in_email"}', limited.plane), 1);
  });
});

describe('what comes from the database', () => {
  const labels = async () => {
    const { id, name } = await db
      .selectFrom('hosts')
      .select(['id', 'name'])
      .where('address', 'is', null)
      .executeTakeFirstOrThrow();
    return `{host_id="${id}",host_name="${name}"}`;
  };

  it('is what each host has, what is reserved on it, and its pool', async () => {
    const row = await db.selectFrom('hosts').selectAll().executeTakeFirstOrThrow();
    const of = await labels();
    await reaches(`sandbar_host_vcpus_reserved${of}`, row.reserved_vcpus);
    const text = await scrape();
    const gauge = (name: string) => valueIn(text, `sandbar_host_${name}${of}`);
    assert.equal(gauge('vcpus_capacity'), 2 * 1000);
    assert.equal(gauge('vcpus_free'), 2 * 1000 - row.reserved_vcpus);
    assert.equal(gauge('memory_capacity_bytes'), 65_536 * 4 * 2 ** 20);
    assert.equal(gauge('memory_reserved_bytes'), row.reserved_memory_mb * 2 ** 20);
    assert.equal(gauge('disk_reserved_bytes'), row.reserved_disk_gb * 2 ** 30);
    assert.equal(gauge('filesystem_size_bytes'), 104_857_600 * 2 ** 20);
    assert.deepEqual([gauge('pool_ready_clones'), gauge('pool_target_clones')], [3, 8]);
    assert.ok((gauge('report_age_seconds') ?? 99) < 30);
  });

  it('is the same on another replica, which has counted nothing', async () => {
    const replica = await bed.addReplica();
    const text = await scrape(replica);
    const of = await labels();
    const host = await db.selectFrom('hosts').selectAll().executeTakeFirstOrThrow();
    assert.equal(valueIn(text, `sandbar_host_vcpus_reserved${of}`), host.reserved_vcpus);
    assert.equal(valueIn(text, 'sandbar_database_up'), 1);
    assert.doesNotMatch(text, /^sandbar_http_requests_total\{/m);
  });

  it('hosts by state, and never their addresses', async () => {
    for (const change of ['draining = true', 'draining = true, emptying = true']) {
      const { info } = await bed.addRemote();
      await sql`update hosts set ${sql.raw(change)} where id = ${info.host_id}`.execute(db);
    }
    // Nobody reaches these two: a host without an address is reached from its own computer only.
    const local = await db.selectFrom('hosts').selectAll().where('address', 'is', null).executeTakeFirstOrThrow();
    const { created_at: _created, seen_at: _seen, ...facts } = { ...local, images: '[]', templates: '[]' };
    await db
      .insertInto('hosts')
      .values({ ...facts, id: randomUUID(), name: 'gone', removed_at: new Date() })
      .execute();
    await db
      .insertInto('hosts')
      .values({ ...facts, id: randomUUID(), name: 'silent' })
      .execute();
    await sql`update hosts set seen_at = now() - interval '1 minute' where name = 'silent'`.execute(db);
    for (const state of ['active', 'cordoned', 'emptying', 'away']) await reaches(`sandbar_hosts{state="${state}"}`, 1);
    const text = await scrape();
    assert.match(text, /host_name="silent"/);
    assert.doesNotMatch(text, /host_name="gone"/);
    assert.doesNotMatch(text, /remote-1:|7072|10\.8[34]\./);
  });

  it('operations under way, and those that nobody works on', async () => {
    const id = await createMachine();
    host.fault('ensure', 'hang');
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await reaches('sandbar_operations_under_way{kind="stop"}', 1);
    host.heal();
    assert.equal((await stopping).status, 200);
    await reaches('sandbar_operations_under_way{kind="stop"}', 0);
    assert.equal(await read('sandbar_operations_overdue_seconds'), 0);
  });

  it('an operation of a host that is away is overdue, and failing after many attempts', async () => {
    const away = await db.selectFrom('hosts').select('id').where('name', '=', 'silent').executeTakeFirstOrThrow();
    await sql`
      insert into operations (account_id, host_id, volume_id, kind, actor, attempts, run_at, created_at)
      values (${bed.accountId}, ${away.id}, ${randomUUID()}, 'delete_volume', 'user', 6,
        now() - interval '90 seconds', now() - interval '2 minutes')`.execute(db);
    await reaches('sandbar_operations_failing{kind="delete_volume"}', 1);
    const text = await scrape();
    assert.ok((valueIn(text, 'sandbar_operations_overdue_seconds') ?? 0) >= 90);
    assert.ok((valueIn(text, 'sandbar_operations_oldest_age_seconds{kind="delete_volume"}') ?? 0) >= 120);
    await db.deleteFrom('operations').where('kind', '=', 'delete_volume').execute();
  });
});

describe('the ledger', () => {
  it('lags by the age of the oldest account that must be charged', async () => {
    const own = billed.plane.app.db;
    await sql`
      insert into prices (vcpu_hour_micros, memory_gib_hour_micros, storage_gib_hour_micros, snapshot_gib_hour_micros)
      values (1, 1, 1, 1)`.execute(own);
    assert.equal(await read('sandbar_ledger_lag_seconds', billed.plane), 0);
    const account = own.updateTable('accounts').where('id', '=', billed.accountId);
    await account.set({ billing_mode: 'prepaid', balance_micros: 1_000_000 }).execute();
    assert.equal((await billed.api('POST', '/v1/machines', { body: {} })).status, 201);
    await account.set({ charged_until: sql<Date>`now() - interval '10 minutes'` }).execute();
    const lag = () => read('sandbar_ledger_lag_seconds', billed.plane);
    await until(async () => ((await lag()) ?? 0) >= 600, 'the ledger lags', 15_000);
  });
});

describe('while the database does not answer', () => {
  it('a scrape still has what the replica counts', async () => {
    await cutOff.api('POST', '/v1/machines', { body: {} });
    await postgres.stop();
    const text = await scrape(cutOff.plane);
    assert.equal(valueIn(text, 'sandbar_database_up'), 0);
    assert.doesNotMatch(text, /^sandbar_hosts\{/m);
    assert.match(text, /^sandbar_http_requests_total\{method="POST",route="\/v1\/machines",status="201"\} 1$/m);
    await postgres.start();
    await until(
      async () => (await read('sandbar_database_up', cutOff.plane)) === 1,
      'the database is read again',
      20_000,
    );
  });
});
