// Tests of machines that expire: which expiries a request may set, and that the stop or destroy happens exactly once,
// by the database's clock, whatever else happens. Tests move the expiry into the past instead of waiting for it.
import assert from 'node:assert/strict';
import { afterEach, describe, it, mock } from 'node:test';
import type { Audit } from '@sandbar/contract/admin.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { sql } from 'kysely';
import pg from 'pg';
import { performExpiry } from '../src/operations/expiry.ts';
import { claimDue } from '../src/operations/store.ts';
import { callAdmin } from './support/admin.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { startTestBed, type TestBed } from './support/test-bed.ts';

const A_YEAR = 31_536_000;
const WITHIN_MS = 60_000;
const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 } });
const { api, host } = bed;
const { db } = bed.plane.app;
afterEach(() => host.heal());

const create = async (body: object, of: TestBed = bed): Promise<Machine> => {
  const answer = await of.api('POST', '/v1/machines', { body: { memory_mb: 128, ...body } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
};
const getMachine = async (id: string, of: TestBed = bed): Promise<Machine> =>
  (await of.api('GET', `/v1/machines/${id}`)).json;
const patch = (id: string, body: object) => api('PATCH', `/v1/machines/${id}`, { body });
/** Moves the expiry of a machine into the past, so that it is due now. */
async function makeDue(id: string, of: TestBed = bed): Promise<void> {
  const { numUpdatedRows } = await of.plane.app.db
    .updateTable('operations')
    .set({ run_at: sql<Date>`now() - interval '1 second'` })
    .where('machine_id', '=', id)
    .where('kind', '=', 'expire')
    .executeTakeFirst();
  assert.equal(numUpdatedRows, 1n, 'the machine has an expiry');
}
const expiriesOf = (id: string) =>
  db.selectFrom('operations').selectAll().where('machine_id', '=', id).where('kind', '=', 'expire').execute();
const becomes = (id: string, state: Machine['state']) =>
  until(async () => (await getMachine(id)).state === state, `it is ${state}`, WITHIN_MS);
/** Returns the activity of a machine, oldest first, as `action by actor`. */
const feedOf = async (id: string, of: TestBed = bed): Promise<string[]> => {
  const { activity } = (await of.api('GET', `/v1/machines/${id}/activity`)).json;
  return activity.map(({ action, actor }: Record<string, string>) => `${action} by ${actor}`).reverse();
};
const nowOfDatabase = async (): Promise<number> => {
  const { rows } = await sql<{ now: Date }>`select now() as now`.execute(db);
  return rows[0]?.now.getTime() ?? 0;
};

describe('expires_in_sec', () => {
  const ACCEPTED = [10, 60, A_YEAR];
  for (const seconds of ACCEPTED) {
    it(`${seconds} counts from the request, of a create and of a PATCH`, async () => {
      const before = await nowOfDatabase();
      const { id, expires_at, on_expiry } = await create({ expires_in_sec: seconds });
      const between = await nowOfDatabase();
      assert.equal(on_expiry, 'destroy', 'the default');
      assert(isWithin(expires_at, [before, between], seconds), `${expires_at}`);
      const { json } = await patch(id, { expires_in_sec: seconds });
      assert(isWithin(json.expires_at, [between, await nowOfDatabase()], seconds), json.expires_at);
      assert.equal((await getMachine(id)).expires_at, json.expires_at);
      const listed = (await api('GET', '/v1/machines')).json.machines.find((one: Machine) => one.id === id);
      assert.equal(listed.expires_at, json.expires_at);
    });
  }

  const isWithin = (time: string | null, [from, to]: [number, number], seconds: number): boolean => {
    const startedAt = Date.parse(time ?? '') - seconds * 1000;
    return startedAt >= from && startedAt <= to;
  };

  it('null and nothing at all mean never', async () => {
    assert.equal((await create({})).expires_at, null);
    const { id, expires_at, on_expiry } = await create({ expires_in_sec: null, on_expiry: 'stop' });
    assert.deepEqual([expires_at, on_expiry], [null, 'stop']);
    assert.deepEqual(await expiriesOf(id), []);
  });

  const REFUSED: [body: object, words: RegExp][] = [
    [{ expires_in_sec: 9 }, /^expires_in_sec must be .*10 to 31536000/],
    [{ expires_in_sec: 0 }, /^expires_in_sec must be .*10 to 31536000/],
    [{ expires_in_sec: A_YEAR + 1 }, /^expires_in_sec must be .*10 to 31536000/],
    [{ expires_in_sec: 10.5 }, /^expires_in_sec must be an integer/],
    [{ expires_in_sec: '60' }, /^expires_in_sec must be an integer/],
    [{ on_expiry: 'burn' }, /^on_expiry must be one of destroy, stop\.$/],
    [{ on_expiry: null }, /^on_expiry must be one of destroy, stop\.$/],
  ];
  for (const [body, words] of REFUSED) {
    it(`is refused in plain words: ${JSON.stringify(body)}`, async () => {
      const { id } = await create({});
      const answers = [await api('POST', '/v1/machines', { body }), await patch(id, body)];
      for (const { status, json } of answers) {
        assert.deepEqual([status, json.code], [400, 'validation_error']);
        assert.match(json.detail, words);
      }
      assert.equal((await getMachine(id)).expires_at, null);
    });
  }

  it('counts by the clock of the database, whatever the clock of the process says', async () => {
    const { id } = await create({});
    const before = await nowOfDatabase();
    mock.timers.enable({ apis: ['Date'], now: Date.parse('2040-01-01T00:00:00Z') });
    let answer: Awaited<ReturnType<typeof patch>>;
    try {
      answer = await patch(id, { expires_in_sec: 1000 });
    } finally {
      mock.timers.reset();
    }
    assert.equal(answer.status, 200, answer.text);
    assert(isWithin(answer.json.expires_at, [before, await nowOfDatabase()], 1000), answer.json.expires_at);
  });

  it('of a create that fails leaves nothing', async () => {
    host.fault('ensure', 'fail', 1);
    assert.equal((await api('POST', '/v1/machines', { body: { expires_in_sec: 60 } })).status, 500);
    const rows = await sql`select from operations where kind = 'expire'
      and machine_id not in (select id from machines)`.execute(db);
    assert.equal(rows.rows.length, 0);
    await checkAll(bed);
  });

  it('of a create that is replayed stays as it was', async () => {
    const ask = () =>
      api('POST', '/v1/machines', { body: { expires_in_sec: 600 }, headers: { 'idempotency-key': 'expiring' } });
    const [first, again] = [await ask(), await ask()];
    assert.deepEqual([first.status, again.status], [201, 200]);
    assert.equal(again.json.expires_at, first.json.expires_at);
  });
});

describe('at its expiry a machine', () => {
  it('is destroyed, once, by system:expiry', async () => {
    const { id } = await create({ expires_in_sec: 60 });
    await makeDue(id);
    await becomes(id, 'destroyed');
    const { expires_at, operation } = await getMachine(id);
    assert.deepEqual([expires_at, operation], [null, null]);
    assert.deepEqual(await feedOf(id), ['machine.created by user', 'machine.destroyed by system:expiry']);
    assert(!host.machines.has(id));
    await checkAll(bed);
  });

  it('is stopped when it asked for that, and its jobs are lost', async () => {
    const { id } = await create({ expires_in_sec: 60, on_expiry: 'stop' });
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json;
    await makeDue(id);
    await becomes(id, 'stopped');
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job.id}`)).json.status, 'lost');
    const { expires_at, operation, on_expiry } = await getMachine(id);
    assert.deepEqual([expires_at, operation, on_expiry], [null, null, 'stop']);
    assert.deepEqual(
      (await feedOf(id)).filter((entry) => entry.startsWith('machine.')),
      ['machine.created by user', 'machine.stopped by system:expiry'],
    );
    await checkAll(bed);
  });

  it('with snapshots is stopped, whatever on_expiry says', async () => {
    const { id } = await create({ expires_in_sec: 60, on_expiry: 'destroy' });
    assert.equal((await api('POST', `/v1/machines/${id}/snapshots`)).status, 201);
    await makeDue(id);
    await becomes(id, 'stopped');
    assert.equal((await feedOf(id)).at(-1), 'machine.stopped by system:expiry');
    await checkAll(bed);
  });

  it('that is stopped already stays so, and nothing is told', async () => {
    const { id } = await create({ expires_in_sec: 60, on_expiry: 'stop' });
    await api('POST', `/v1/machines/${id}/stop`);
    const feed = await feedOf(id);
    await makeDue(id);
    await until(async () => (await getMachine(id)).expires_at === null, 'it has expired', WITHIN_MS);
    assert.equal((await getMachine(id)).state, 'stopped');
    assert.deepEqual(await feedOf(id), feed);
  });

  it('that is stopped, or in error, is destroyed when it asked for that', async () => {
    const { id: stopped } = await create({ expires_in_sec: 60 });
    await api('POST', `/v1/machines/${stopped}/stop`);
    const { id: broken } = await create({ expires_in_sec: 60 });
    host.end(broken, 'failed', 'It died.');
    await becomes(broken, 'error');
    for (const id of [stopped, broken]) {
      await makeDue(id);
      await becomes(id, 'destroyed');
      assert.equal((await feedOf(id)).at(-1), 'machine.destroyed by system:expiry');
    }
    await checkAll(bed);
  });

  it('gives its volumes back', async () => {
    const { id } = await create({ expires_in_sec: 60 });
    const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    assert.equal((await api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: id } })).status, 200);
    await makeDue(id);
    await becomes(id, 'destroyed');
    assert.equal((await api('GET', `/v1/volumes/${volume}`)).json.state, 'available');
    await checkAll(bed);
  });

  it('among twenty of the same moment, with two replicas, ends once', async () => {
    const machines = await Promise.all(Array.from({ length: 20 }, () => create({ expires_in_sec: 60 })));
    await sql`update operations set run_at = now() - interval '1 second'
      where kind = 'expire' and machine_id = any(${machines.map(({ id }) => id)}::uuid[])`.execute(db);
    for (const { id } of machines) {
      await becomes(id, 'destroyed');
      assert.deepEqual(await feedOf(id), ['machine.created by user', 'machine.destroyed by system:expiry']);
    }
    await checkAll(bed);
  });

  it('waits while another operation is under way, and ends after it', async () => {
    const { id, expires_at } = await create({ expires_in_sec: 60 });
    host.fault('ensure', 'hang', 1);
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await until(async () => (await getMachine(id)).operation !== null, 'it is being stopped', WITHIN_MS);
    await makeDue(id);
    await until(async () => ((await expiriesOf(id))[0]?.attempts ?? 0) >= 2, 'it was looked at twice', WITHIN_MS);
    const waiting = await getMachine(id);
    assert.deepEqual([waiting.state, waiting.operation?.kind], ['running', 'stop']);
    assert(waiting.expires_at && waiting.expires_at < (expires_at ?? ''), 'it is shown until it happens');
    host.release();
    assert.equal((await stopping).status, 200);
    await becomes(id, 'destroyed');
    assert.deepEqual((await feedOf(id)).slice(1), ['machine.stopped by user', 'machine.destroyed by system:expiry']);
    await checkAll(bed);
  });

  it('that waits for another operation is no failure that the doctor tells of', async () => {
    const { id } = await create({ expires_in_sec: 60 });
    host.fault('ensure', 'hang', 1);
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await until(async () => (await getMachine(id)).operation !== null, 'it is being stopped', WITHIN_MS);
    await makeDue(id);
    // While it waits, an expiry makes about ten attempts in some seconds. The doctor must not report them as failures.
    await sql`update operations set attempts = 10 where kind = 'expire' and machine_id = ${id}`.execute(db);
    const { json } = await callAdmin<Audit>(bed.plane.app.config.adminSocket, '/admin/audit');
    host.release();
    await stopping;
    await becomes(id, 'destroyed');
    assert.deepEqual(json.findings, []);
  });

  it('of a host that is away ends when the host is back', async () => {
    const { id } = await create({ expires_in_sec: 60 });
    const { id: stopping } = await create({ expires_in_sec: 60, on_expiry: 'stop' });
    await host.away();
    await makeDue(id);
    await makeDue(stopping);
    assert.equal((await getMachine(id)).state, 'running');
    await host.listen();
    await becomes(id, 'destroyed');
    await becomes(stopping, 'stopped');
    assert.deepEqual((await feedOf(id)).slice(1), ['machine.destroyed by system:expiry']);
    assert.deepEqual((await feedOf(stopping)).slice(1), ['machine.stopped by system:expiry']);
    await checkAll(bed);
  });

  it('of a host that refuses is attempted again, as an operation that the machine shows', async () => {
    const { id } = await create({ expires_in_sec: 60 });
    host.fault('delete', 'fail');
    await makeDue(id);
    await until(async () => ((await getMachine(id)).operation?.attempts ?? 0) >= 2, 'it failed once', WITHIN_MS);
    const { operation, expires_at } = await getMachine(id);
    assert.equal(operation?.kind, 'destroy');
    assert.equal(expires_at, null);
    host.heal();
    await becomes(id, 'destroyed');
    assert.deepEqual((await feedOf(id)).slice(1), ['machine.destroyed by system:expiry']);
    await checkAll(bed);
  });
});

describe('an expiry', () => {
  it('is taken away by PATCH null, and on_expiry stays', async () => {
    const { id } = await create({ expires_in_sec: 60, on_expiry: 'stop' });
    const { status, json } = await patch(id, { expires_in_sec: null });
    assert.deepEqual([status, json.expires_at, json.on_expiry], [200, null, 'stop']);
    assert.deepEqual(await expiriesOf(id), []);
  });

  const LATE: [name: string, body: { expires_in_sec: number | null }][] = [
    ['taken away', { expires_in_sec: null }],
    ['moved', { expires_in_sec: 1000 }],
  ];
  for (const [name, body] of LATE) {
    it(`is ${name} by PATCH also when it is just due`, async () => {
      const { id } = await create({ expires_in_sec: 60 });
      const other = new pg.Client({ connectionString: bed.databaseUrl });
      await other.connect();
      const waiting = async (count: number) => {
        const { rowCount } = await other.query(
          `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
        );
        return rowCount === count;
      };
      await other.query('begin');
      await other.query('select from machines where id = $1 for update', [id]);
      const patching = patch(id, body);
      await until(() => waiting(1), 'the PATCH waits for the row', WITHIN_MS);
      await makeDue(id);
      await until(() => waiting(2), 'the expiry was claimed, and waits behind it', WITHIN_MS);
      await other.query('commit');
      await other.end();
      const { status, json } = await patching;
      assert.equal(status, 200);
      assert.equal(json.expires_at === null, body.expires_in_sec === null);
      // A second machine expires later and is destroyed. By then the service has also handled the first machine's
      // expiry, so the first expiry was skipped and not just delayed.
      const { id: later } = await create({ expires_in_sec: 60 });
      await makeDue(later);
      await becomes(later, 'destroyed');
      assert.deepEqual([(await getMachine(id)).state, await feedOf(id)], ['running', ['machine.created by user']]);
      assert.equal((await getMachine(id)).expires_at, json.expires_at);
      await checkAll(bed);
    });
  }

  it('is moved by PATCH, to earlier and to later', async () => {
    const { id, expires_at } = await create({ expires_in_sec: 600 });
    const later = (await patch(id, { expires_in_sec: 6000 })).json.expires_at;
    const earlier = (await patch(id, { expires_in_sec: 60 })).json.expires_at;
    assert(later > (expires_at ?? '') && earlier < (expires_at ?? ''));
    assert.equal((await expiriesOf(id)).length, 1);
  });

  it('stays when PATCH changes what happens then', async () => {
    const { id, expires_at } = await create({ expires_in_sec: 600 });
    const { json } = await patch(id, { on_expiry: 'stop' });
    assert.deepEqual([json.expires_at, json.on_expiry], [expires_at, 'stop']);
    await makeDue(id);
    await becomes(id, 'stopped');
  });

  it('is not moved by a job, a change of metadata, a stop or a start', async () => {
    const { id, expires_at } = await create({ expires_in_sec: 600 });
    await api('POST', `/v1/machines/${id}/execs?wait_ms=10000`, { body: { command: 'true' } });
    await patch(id, { metadata: { used: true }, name: 'used' });
    await api('POST', `/v1/machines/${id}/stop`);
    assert.equal((await getMachine(id)).expires_at, expires_at);
    await api('POST', `/v1/machines/${id}/start`);
    assert.equal((await getMachine(id)).expires_at, expires_at);
  });

  it('goes with a machine that is destroyed before', async () => {
    const { id } = await create({ expires_in_sec: 600 });
    const { status, json } = await api('DELETE', `/v1/machines/${id}`);
    assert.deepEqual([status, json.expires_at], [200, null]);
    assert.deepEqual(await expiriesOf(id), []);
  });

  it('can be asked for again after it has stopped the machine', async () => {
    const { id } = await create({ expires_in_sec: 60, on_expiry: 'stop' });
    for (let round = 0; round < 2; round++) {
      await makeDue(id);
      await becomes(id, 'stopped');
      assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
      assert((await patch(id, { expires_in_sec: 60 })).json.expires_at);
    }
    assert.equal((await feedOf(id)).filter((entry) => entry === 'machine.stopped by system:expiry').length, 2);
    await checkAll(bed);
  });
});

describe('a control plane that dies in the middle of an expiry', () => {
  const FATES: Fate[] = ['dies', 'loses the answer'];
  for (const fate of FATES) {
    for (const onExpiry of ['destroy', 'stop'] as const) {
      it(`(it ${fate}): the ${onExpiry} happens exactly once, whatever the step`, async () => {
        // The reconciler must not run on its own here: only the test's own process may take steps.
        const quiet = await startTestBed({ timing: { reconcileMs: 3_600_000, reconcileJobsMs: 3_600_000 } });
        const { app, reconciler } = quiet.plane;
        const ended = onExpiry === 'destroy' ? 'destroyed' : 'stopped';
        for (let at = 1, wasReached = true; wasReached; at++) {
          assert(at < 100, 'an expiry has an end');
          const { id } = await create({ expires_in_sec: 60, on_expiry: onExpiry }, quiet);
          await makeDue(id, quiet);
          wasReached = await runWithFate(app, { fate, at }, async (own) => {
            const claimed = await claimDue(own, app.hosts.reachableIds());
            if (claimed) await performExpiry(own, claimed);
          });
          // The dead process no longer renews its claims, so let them expire.
          await sql`update operations set claim_expires_at = now() - interval '1 second'
            where claim_token is not null and finished_at is null`.execute(app.db);
          await sql`update operations set run_at = now() where kind <> 'expire' and finished_at is null`.execute(
            app.db,
          );
          const hasEnded = async () => {
            await reconciler.runOnce();
            const { state, operation, expires_at } = await getMachine(id, quiet);
            return state === ended && operation === null && expires_at === null;
          };
          await until(hasEnded, `it is ${ended} after step ${at}`, WITHIN_MS);
          assert.deepEqual(await feedOf(id, quiet), ['machine.created by user', `machine.${ended} by system:expiry`]);
          await checkAll(quiet);
        }
      });
    }
  }
});
