// Tests of operations through the API: what a machine shows of its operation, how failures are retried, that one
// operation does not delay another, that two replicas never work on the same operation, and what the doctor reports
// about repeated failures.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { Audit, AuditFix } from '@sandbar/contract/admin.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { OperationKind } from '@sandbar/contract/machine-states.ts';
import { sql } from 'kysely';
import { asOwner } from '../src/db/database.ts';
import { createLog } from '../src/log.ts';
import { claimDue, pauseAfterMs } from '../src/operations/store.ts';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { callAdmin } from './support/admin.ts';
import type { Operation } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type Answer, startTestBed, type TestBed } from './support/test-bed.ts';

const WITHIN_MS = 60_000;
const bed = await startTestBed({
  replicas: 3,
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { claimTtlMs: 2_000, claimRenewMs: 200, retryMs: { first: 20, longest: 100 } },
});
const { api, host } = bed;
const { db } = bed.plane.app;
/** A test bed that never retries during a test: its first retry comes after 1000 s. */
const slow = await startTestBed({
  timing: { operationWaitMs: 400, retryMs: { first: 1_000_000, longest: 4_000_000 } },
});
afterEach(() => {
  host.heal();
  slow.host.heal();
});

const create = async (of: TestBed = bed): Promise<string> => {
  const answer = await of.api('POST', '/v1/machines', { body: { memory_mb: 128 } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const getMachine = async (id: string, of: TestBed = bed): Promise<Machine> =>
  (await of.api('GET', `/v1/machines/${id}`)).json;
const operationOf = (machine: string, of: TestBed = bed) =>
  of.plane.app.db
    .selectFrom('operations')
    .selectAll()
    .where('machine_id', '=', machine)
    .where('finished_at', 'is', null)
    .executeTakeFirst();
const feedOf = async (machine: string, of: TestBed = bed): Promise<string[]> => {
  const { activity } = (await of.api('GET', `/v1/machines/${machine}/activity`)).json;
  return activity.map(({ action }: { action: string }) => action).reverse();
};
const callsAbout = (machine: string, operation: Operation): number =>
  host.calls.filter((call) => call.operation === operation && call.machineId === machine).length;
/** Inserts an unfinished stop operation, as if a process died right after it wrote the row. */
async function leaveStop(machine: string): Promise<void> {
  await db.transaction().execute(async (tx) => {
    await sql`update machines set generation = generation + 1 where id = ${machine}`.execute(tx);
    await sql`insert into operations (account_id, host_id, machine_id, kind, actor)
      select account_id, host_id, id, 'stop', 'user' from machines where id = ${machine}`.execute(tx);
  });
}
const audit = async (of: TestBed): Promise<Audit> =>
  (await callAdmin<Audit>(of.plane.app.config.adminSocket, '/admin/audit')).json;

describe('the operation of a machine', () => {
  type Case = { kind: OperationKind; step: Operation; prepare: () => Promise<() => Promise<Answer>> };
  const about = async (path: string, from: 'running' | 'stopped' = 'running') => {
    const id = await create();
    if (from === 'stopped') await api('POST', `/v1/machines/${id}/stop`);
    return () => (path === '' ? api('DELETE', `/v1/machines/${id}`) : api('POST', `/v1/machines/${id}${path}`));
  };
  const CASES: Case[] = [
    {
      kind: 'create',
      step: 'ensure',
      prepare: async () => () => api('POST', '/v1/machines', { body: { memory_mb: 128 } }),
    },
    { kind: 'start', step: 'ensure', prepare: () => about('/start', 'stopped') },
    { kind: 'stop', step: 'ensure', prepare: () => about('/stop') },
    { kind: 'destroy', step: 'delete', prepare: () => about('') },
    { kind: 'snapshot', step: 'takeSnapshot', prepare: () => about('/snapshots') },
    {
      kind: 'restore',
      step: 'ensure',
      prepare: async () => {
        const snapshot = (await api('POST', `/v1/machines/${await create()}/snapshots`)).json.id;
        return () => api('POST', `/v1/snapshots/${snapshot}/restore`);
      },
    },
    {
      kind: 'attach',
      step: 'ensure',
      prepare: async () => {
        const body = { machine_id: await create() };
        const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
        return () => api('POST', `/v1/volumes/${volume}/attach`, { body });
      },
    },
    {
      kind: 'detach',
      step: 'ensure',
      prepare: async () => {
        const body = { machine_id: await create() };
        const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
        assert.equal((await api('POST', `/v1/volumes/${volume}/attach`, { body })).status, 200);
        return () => api('POST', `/v1/volumes/${volume}/detach`);
      },
    },
  ];
  for (const { kind, step, prepare } of CASES) {
    it(`shows a ${kind} while it is under way, and nothing after`, async () => {
      const ask = await prepare();
      const before = host.callsOf(step);
      host.fault(step, 'hang', 1);
      const asking = ask();
      const underWay = () =>
        db
          .selectFrom('operations')
          .selectAll()
          .where('kind', '=', kind)
          .where('finished_at', 'is', null)
          .executeTakeFirst();
      await until(async () => (await underWay()) !== undefined, 'it is under way', WITHIN_MS);
      await until(() => host.callsOf(step) > before, 'the host is asked', WITHIN_MS);
      const row = await underWay();
      assert(row?.machine_id);
      const expected = { kind, since: row.created_at.toISOString(), attempts: 1, last_error: null };
      assert.deepEqual((await getMachine(row.machine_id)).operation, expected);
      const { machines } = (await api('GET', '/v1/machines')).json;
      assert.deepEqual(machines.find(({ id }: Machine) => id === row.machine_id).operation, expected);
      host.release();
      const answer = await asking;
      assert(answer.status < 300, answer.text);
      assert.equal((await getMachine(row.machine_id)).operation, null);
      await checkAll(bed);
    });
  }

  it('is null in every answer to the request that began it', async () => {
    const id = await create();
    for (const [method, path] of [
      ['POST', '/stop'],
      ['POST', '/start'],
      ['DELETE', ''],
    ] as const) {
      assert.equal((await api(method, `/v1/machines/${id}${path}`)).json.operation, null);
    }
  });

  it('tells how often it was attempted, and why the last attempt failed', async () => {
    const id = await create();
    host.fault('ensure', 'fail');
    const { status } = await api('POST', `/v1/machines/${id}/stop`);
    assert.equal(status, 500);
    await until(async () => ((await getMachine(id)).operation?.attempts ?? 0) >= 3, 'it is repeated', WITHIN_MS);
    const { operation, state } = await getMachine(id);
    assert.deepEqual(
      [operation?.kind, operation?.last_error, state],
      ['stop', 'The fake host was told to fail.', 'running'],
    );
    host.heal();
    await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
    assert.equal((await getMachine(id)).operation, null);
    assert.deepEqual(await feedOf(id), ['machine.created', 'machine.stopped']);
    await checkAll(bed);
  });

  it('never tells what an error of our own says inside', async () => {
    const id = await create();
    const asOwnerOf = (query: string) =>
      asOwner(bed.databaseUrl, createLog('silent'), async (owner) => void (await sql.raw(query).execute(owner)));
    await asOwnerOf(`
      create function break_it() returns trigger language plpgsql as
      $$ begin raise exception 'words of the database about row %', new.id; end $$`);
    await asOwnerOf(`create trigger break_it before update on machines for each row
      when (new.state = 'stopped') execute function break_it()`);
    try {
      const answer = await api('POST', `/v1/machines/${id}/stop`);
      assert.equal(answer.status, 500);
      const shown = await api('GET', `/v1/machines/${id}`);
      assert.equal(shown.json.operation.kind, 'stop');
      for (const { text } of [answer, shown]) assert(!text.includes('words of the database'), text);
    } finally {
      await asOwnerOf('drop trigger break_it on machines');
      await asOwnerOf('drop function break_it');
    }
    await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
  });
});

describe('an operation that failed', () => {
  it('pauses, twice as long after each attempt, up to the longest pause', () => {
    const pauses = [1, 2, 3, 4, 5, 8, 9, 10, 1000].map((attempts) =>
      pauseAfterMs(attempts, { first: 2_000, longest: 300_000 }),
    );
    assert.deepEqual(pauses, [2_000, 4_000, 8_000, 16_000, 32_000, 256_000, 300_000, 300_000, 300_000]);
  });

  it('is due after the pause of its attempts, unless somebody asks for it', async () => {
    const id = await create(slow);
    slow.host.fault('ensure', 'fail');
    const pauseOf = async () => {
      const { rows } = await sql<{ sec: number; attempts: number }>`
        select extract(epoch from run_at - now())::float8 as sec, attempts from operations
        where machine_id = ${id} and finished_at is null`.execute(slow.plane.app.db);
      return rows[0];
    };
    assert.equal((await slow.api('POST', `/v1/machines/${id}/stop`)).status, 500);
    for (const [attempts, sec] of [
      [1, 1000],
      [2, 2000],
      [3, 4000],
      [4, 4000],
    ] as const) {
      // A request attempts the pending stop at once, and is answered with the error of this attempt.
      if (attempts > 1) assert.equal((await slow.api('POST', `/v1/machines/${id}/stop`)).status, 500);
      await until(async () => ((await pauseOf())?.sec ?? 0) > 500, 'it pauses again', WITHIN_MS);
      const pause = await pauseOf();
      assert.equal(pause?.attempts, attempts);
      assert(pause.sec > sec * 0.9 && pause.sec <= sec, `${pause.sec} s after attempt ${attempts}`);
    }
    slow.host.heal();
    await until(
      async () => (await slow.api('POST', `/v1/machines/${id}/stop`)).status === 200,
      'who asks again has it done',
      WITHIN_MS,
    );
    assert.deepEqual(await feedOf(id, slow), ['machine.created', 'machine.stopped']);
    await checkAll(slow);
  });

  it('is attempted at once when its host comes back, however long its pause', async () => {
    const id = await create(slow);
    slow.host.fault('ensure', 'fail', 1);
    assert.equal((await slow.api('POST', `/v1/machines/${id}/stop`)).status, 500);
    await slow.host.away();
    await until(() => slow.plane.app.hosts.reachableIds().length === 0, 'the host is away', WITHIN_MS);
    await slow.host.listen();
    await until(async () => (await getMachine(id, slow)).state === 'stopped', 'it is stopped', WITHIN_MS);
    await checkAll(slow);
  });

  it('of many is attempted again when the host is back, all of them', async () => {
    const ids = await Promise.all(Array.from({ length: 10 }, () => create()));
    await host.away();
    const answers = await Promise.all(ids.map((id) => api('POST', `/v1/machines/${id}/stop`)));
    assert(answers.every(({ status }) => status === 503));
    await host.listen();
    for (const id of ids) {
      await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
      assert.deepEqual(await feedOf(id), ['machine.created', 'machine.stopped']);
    }
    await checkAll(bed);
  });
});

describe('a host call that hangs', () => {
  it('delays no operation of another machine', async () => {
    const hung = await Promise.all(Array.from({ length: 5 }, () => create()));
    const others = await Promise.all(Array.from({ length: 20 }, () => create()));
    const before = host.callsOf('ensure');
    host.fault('ensure', 'hang', hung.length);
    for (const id of hung) await leaveStop(id);
    await until(() => host.callsOf('ensure') >= before + hung.length, 'their calls hang', WITHIN_MS);
    for (const id of others) await leaveStop(id);
    for (const id of others) {
      await until(async () => (await getMachine(id)).state === 'stopped', 'another machine is stopped', WITHIN_MS);
    }
    for (const id of hung) {
      const { state, operation } = await getMachine(id);
      assert.deepEqual([state, operation?.kind], ['running', 'stop'], 'it hangs still');
    }
    // A start by request is not delayed either.
    assert.equal((await api('POST', `/v1/machines/${others[0]}/start`)).status, 200);
    host.release();
    for (const id of hung) {
      await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
    }
    await checkAll(bed);
  });

  it('keeps its claim while its process lives, so that no other replica begins it', async () => {
    const id = await create();
    host.fault('ensure', 'hang', 1);
    const before = callsAbout(id, 'ensure');
    await leaveStop(id);
    await until(() => callsAbout(id, 'ensure') > before, 'its call hangs', WITHIN_MS);
    const first = await operationOf(id);
    assert(first?.claim_expires_at);
    const firstExpiry = first.claim_expires_at;
    // Wait until the expiry of the claim has moved by more than 4 s. A claim lasts 2 s, so it was renewed at least
    // twice.
    await until(
      async () => ((await operationOf(id))?.claim_expires_at?.getTime() ?? 0) > firstExpiry.getTime() + 4_000,
      'the claim was renewed',
      WITHIN_MS,
    );
    const now = await operationOf(id);
    assert.deepEqual([now?.claim_token, now?.attempts], [first.claim_token, 1]);
    assert.equal(callsAbout(id, 'ensure'), before + 1);
    host.release();
    await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
    await checkAll(bed);
  });
});

describe('three replicas', () => {
  it('do each of forty operations once', async () => {
    const ids = await Promise.all(Array.from({ length: 40 }, () => create()));
    const before = new Map(ids.map((id) => [id, callsAbout(id, 'ensure')]));
    await Promise.all(ids.map(leaveStop));
    for (const id of ids) {
      await until(async () => (await getMachine(id)).state === 'stopped', 'it is stopped', WITHIN_MS);
      assert.equal(callsAbout(id, 'ensure'), (before.get(id) ?? 0) + 1, 'the host was asked once');
      assert.deepEqual(await feedOf(id), ['machine.created', 'machine.stopped']);
    }
    await checkAll(bed);
  });

  it('claim each operation that is due once, however many ask at once', async () => {
    const ids = await Promise.all(Array.from({ length: 12 }, () => create(slow)));
    // The operations get a host that this bed is not connected to, so that its reconciler does not claim them.
    const elsewhere = '019b0000-0000-7000-8000-0000000000ff';
    const own = slow.plane.app.db;
    await sql`insert into hosts select (jsonb_populate_record(hosts, jsonb_build_object('id', ${elsewhere}::text))).*
      from hosts limit 1`.execute(own);
    await sql`insert into operations (account_id, host_id, machine_id, kind, actor)
      select account_id, ${elsewhere}::uuid, id, 'stop', 'user' from machines where id = any(${ids}::uuid[])`.execute(
      own,
    );
    const claims = await Promise.all(Array.from({ length: 30 }, () => claimDue(slow.plane.app, [elsewhere])));
    const claimed = claims.flatMap((claim) => claim?.operation.id ?? []);
    assert.equal(claimed.length, 12);
    assert.equal(new Set(claimed).size, 12);
    await sql`delete from operations where host_id = ${elsewhere}`.execute(own);
    await sql`delete from hosts where id = ${elsewhere}`.execute(own);
    await checkAll(slow);
  });
});

describe('the doctor', () => {
  it('names an operation that failed more than five times, with its last error, and its mend attempts it now', async () => {
    const id = await create(slow);
    const own = slow.plane.app.db;
    slow.host.fault('ensure', 'fail');
    assert.equal((await slow.api('POST', `/v1/machines/${id}/stop`)).status, 500);
    const setAttempts = (attempts: number) =>
      sql`update operations set attempts = ${attempts} where machine_id = ${id} and finished_at is null`.execute(own);
    await setAttempts(5);
    assert.deepEqual((await audit(slow)).findings, [], 'five failures are none of its business');
    await setAttempts(6);
    const [finding, ...more] = (await audit(slow)).findings;
    assert.deepEqual(more, []);
    assert.deepEqual([finding?.area, finding?.subject], ['operation', id]);
    assert.match(finding?.detail ?? '', /stop failed 6 times.*The fake host was told to fail\./);
    slow.host.heal();
    const socket = slow.plane.app.config.adminSocket;
    const { json } = await callAdmin<AuditFix>(socket, '/admin/audit/fix', {});
    assert.deepEqual(json.findings, [], JSON.stringify(json));
    assert.equal((await getMachine(id, slow)).state, 'stopped');
  });

  it('names an operation that is due and that nobody takes', async () => {
    const id = await create(slow);
    const own = slow.plane.app.db;
    const elsewhere = '019b0000-0000-7000-8000-0000000000fe';
    await sql`insert into hosts select (jsonb_populate_record(hosts, jsonb_build_object('id', ${elsewhere}::text))).*
      from hosts limit 1`.execute(own);
    await sql`insert into operations (account_id, host_id, machine_id, kind, actor, run_at)
      select account_id, ${elsewhere}::uuid, id, 'stop', 'user', now() - interval '2 minutes'
      from machines where id = ${id}`.execute(own);
    const { findings } = await audit(slow);
    await sql`delete from operations where host_id = ${elsewhere}`.execute(own);
    await sql`delete from hosts where id = ${elsewhere}`.execute(own);
    assert(
      findings.some(({ area, subject }) => area === 'operation' && subject === id),
      JSON.stringify(findings),
    );
  });
});

describe('a finished operation', () => {
  it('is kept for those who wait for its result, and gone after an hour', async () => {
    const id = await create(slow);
    const own = slow.plane.app.db;
    await slow.api('POST', `/v1/machines/${id}/stop`);
    const count = async () => {
      const { rows } = await sql<{
        kind: string;
      }>`select kind from operations where machine_id = ${id} order by id`.execute(own);
      return rows.map(({ kind }) => kind).sort();
    };
    await keepHouse(slow.plane.app);
    assert.deepEqual(await count(), ['create', 'stop']);
    await sql`update operations set finished_at = now() - interval '2 hours' where machine_id = ${id} and kind = 'create'`.execute(
      own,
    );
    await keepHouse(slow.plane.app);
    assert.deepEqual(await count(), ['stop']);
  });
});
