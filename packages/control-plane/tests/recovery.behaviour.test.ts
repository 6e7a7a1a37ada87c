// Tests that rows, reservations and the host agree after any failure, crash or race, and that nothing half-made is
// left.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { MACHINE_STATES, type MachineState } from '@sandbar/contract/machine-states.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { correctMeter } from '../src/audit/mend.ts';
import { recountAccount, recountHost } from '../src/quotas/recount.ts';
import type { Fault } from './support/fake-host/calls.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { isBusy, type Left, leaveOperation } from './support/operations.ts';
import { until } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16' },
  timing: { ensureMs: 800, claimTtlMs: 1_000, claimRenewMs: 200 },
});
const { api, host } = bed;
const { db } = bed.plane.app;
const create = async (): Promise<string> => {
  const answer = await api('POST', '/v1/machines');
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
const countRows = async () =>
  Number((await sql<{ n: number }>`select count(*) as n from machines`.execute(db)).rows[0]?.n);

afterEach(async () => {
  host.heal();
  host.isMute = false;
});

describe('a create that fails', () => {
  const faults: [string, Fault, number, string][] = [
    ['the host refuses', new ServiceError('conflict', 'The host says no.'), 409, 'conflict'],
    ['the host has a bug', 'fail', 500, 'internal_error'],
    ['the connection drops before', 'drop', 503, 'host_unavailable'],
    ['the connection drops after', 'dropAfter', 503, 'host_unavailable'],
    ['the host hangs before', 'hang', 503, 'host_unavailable'],
    ['the host hangs after', 'hangAfter', 503, 'host_unavailable'],
  ];
  for (const [name, fault, status, code] of faults) {
    it(`because ${name} leaves nothing`, async () => {
      const rows = await countRows();
      host.fault('ensure', fault);
      const answer = await api('POST', '/v1/machines');
      assert.deepEqual([answer.status, answer.json.code], [status, code], answer.text);
      assert.equal(await countRows(), rows);
      await checkBooks(bed);
    });

    it(`because ${name}, with an undo that fails too, leaves nothing in the end`, async () => {
      const rows = await countRows();
      host.fault('ensure', fault);
      host.fault('delete', 'fail');
      const answer = await api('POST', '/v1/machines');
      assert.deepEqual([answer.status, answer.json.code], [status, code], 'the client gets the first error');
      assert.equal(await countRows(), rows + 1);
      assert.equal((await api('GET', '/v1/machines?state=provisioning')).json.machines.length, 0, 'it is not shown');
      host.heal();
      await until(async () => (await countRows()) === rows, 'the reconciler discarded it');
      await checkBooks(bed);
    });
  }

  it('carries the reason of the host and the request id', async () => {
    host.fault('ensure', new ServiceError('internal_error', 'The disk of the host is full.'));
    const answer = await api('POST', '/v1/machines', { headers: { 'x-request-id': 'find-me' } });
    assert.equal(answer.json.detail, 'The disk of the host is full. (request find-me)');
  });

  it('when the host is away answers 503 at once and recovers by itself', async () => {
    await host.away();
    await until(() => bed.plane.app.hosts.reachableIds().length === 0, 'the loss is noticed');
    const answer = await api('POST', '/v1/machines');
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    assert(answer.headers.get('retry-after'));
    await host.listen();
    await until(async () => (await api('POST', '/v1/machines')).status === 201, 'creates work again');
  });
});

describe('a create whose rows a crash of the database lost', () => {
  it('answers 503 with a time to retry after, and leaves nothing', async () => {
    host.fault('ensure', 'answerLate', 1);
    const before = host.callsOf('ensure');
    const creating = api('POST', '/v1/machines', { headers: { 'idempotency-key': 'lost' } });
    await until(() => host.callsOf('ensure') > before, 'the host was asked');
    // The commit that admits a create is not synced to disk, so a crash of PostgreSQL can lose it as a whole.
    const { id } = await db
      .selectFrom('machines')
      .select('id')
      .where('state', '=', 'provisioning')
      .executeTakeFirstOrThrow();
    await db.deleteFrom('machines').where('id', '=', id).execute();
    await recountAccount(bed.plane.app, bed.accountId);
    await recountHost(bed.plane.app, FAKE_HOST_ID);
    host.release();
    const { status, headers, json } = await creating;
    assert.deepEqual([status, json.code, headers.get('retry-after')], [503, 'database_unavailable', '2']);
    await until(() => !host.machines.has(id), 'the reconciler removed it from its host');
    const retry = await api('POST', '/v1/machines', { headers: { 'idempotency-key': 'lost' } });
    assert.equal(retry.status, 201, retry.text);
    await checkBooks(bed);
  });
});

describe('a start that fails', () => {
  it('leaves the machine stopped and the memory free', async () => {
    const id = await create();
    await api('POST', `/v1/machines/${id}/stop`);
    host.fault('ensure', 'fail', 1);
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 500);
    assert.equal((await rowOf(id))?.state, 'stopped');
    await checkBooks(bed);
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
  });

  it('with an undo that fails too is stopped in the end', async () => {
    const id = await create();
    await api('POST', `/v1/machines/${id}/stop`);
    host.fault('ensure', 'fail', 2);
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 500);
    await until(async () => (await rowOf(id))?.state === 'stopped', 'the reconciler stopped it');
    await checkBooks(bed);
  });
});

describe('a stop and a delete that fail', () => {
  it('a stop that the host did not answer is finished later', async () => {
    const id = await create();
    host.fault('ensure', 'drop', 4);
    assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 503);
    await until(async () => (await rowOf(id))?.state === 'stopped', 'the reconciler stopped it');
    await checkBooks(bed);
  });

  it('a delete whose answer got lost is repeated and succeeds', async () => {
    const id = await create();
    host.fault('delete', 'dropAfter', 1);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).json.state, 'destroyed');
    await checkBooks(bed);
  });

  it('a delete that the host did not answer is finished later', async () => {
    const id = await create();
    host.fault('delete', 'drop', 4);
    const answer = await api('DELETE', `/v1/machines/${id}`);
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    await until(async () => (await rowOf(id))?.state === 'destroyed', 'the reconciler destroyed it');
    await checkBooks(bed);
  });
});

/** Sets a machine's state, and meters it as the transition to that state would. */
async function setState(id: string, state: MachineState): Promise<void> {
  await db.updateTable('machines').set({ state }).where('id', '=', id).execute();
  await correctMeter(bed.plane.app, 'machine', id);
}

/**
 * Puts a machine into the state that a crash leaves: this row state, and an unfinished operation that nobody works on.
 */
async function crash(id: string, state: MachineState, left: Left): Promise<void> {
  if (left.kind === 'create') await sql`update machines set started_at = null where id = ${id}`.execute(db);
  await setState(id, state);
  await leaveOperation(db, id, left);
}

describe('a machine whose deletion began', () => {
  it('is not brought back by a start or kept by a stop', async () => {
    const id = await create();
    host.fault('delete', 'fail');
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 500);
    for (const action of ['start', 'stop']) {
      const answer = await api('POST', `/v1/machines/${id}/${action}`);
      assert.deepEqual([answer.status, answer.json.detail], [409, 'The machine is being deleted.']);
    }
    host.heal();
    await until(async () => (await rowOf(id))?.state === 'destroyed', 'the reconciler destroyed it');
  });
});

describe('a crash', () => {
  it('in a create before the host heard of it: it is finished', async () => {
    const id = await create();
    host.machines.delete(id);
    await crash(id, 'provisioning', { kind: 'create' });
    await until(async () => (await rowOf(id))?.state === 'running', 'it runs');
    assert.equal(host.machines.get(id)?.report.status, 'running');
    await checkBooks(bed);
  });

  it('in a create after the host made it: it is finished, and the same machine', async () => {
    const id = await create();
    await crash(id, 'provisioning', { kind: 'create' });
    await until(async () => (await rowOf(id))?.state === 'running', 'it runs');
    await checkBooks(bed);
  });

  it('in a create that the host then refuses: nothing is left', async () => {
    const id = await create();
    host.fault('ensure', 'fail');
    await crash(id, 'provisioning', { kind: 'create' });
    await until(async () => (await rowOf(id)) === undefined, 'it is gone');
    await checkBooks(bed);
  });

  it('in an undo, a start, a stop or a delete: it is finished', async () => {
    const cases: [MachineState, Left, string | undefined][] = [
      ['provisioning', { kind: 'create', undoing: true }, undefined],
      ['provisioning', { kind: 'start' }, 'running'],
      ['provisioning', { kind: 'start', undoing: true }, 'stopped'],
      ['running', { kind: 'stop' }, 'stopped'],
      ['running', { kind: 'destroy' }, 'destroyed'],
      ['provisioning', { kind: 'destroy' }, 'destroyed'],
    ];
    for (const [state, left, end] of cases) {
      const id = await create();
      await crash(id, state, left);
      await until(async () => (await rowOf(id))?.state === end, `${state} in a ${left.kind} became ${end}`);
      await checkBooks(bed);
    }
  });

  it('in a start that cannot be finished: it is stopped again, not thrown away', async () => {
    const id = await create();
    host.fault('ensure', 'fail', 1);
    await crash(id, 'provisioning', { kind: 'start' });
    await until(async () => (await rowOf(id))?.state === 'stopped', 'it is stopped');
    await checkBooks(bed);
  });

  it('a claim that is still renewed is left alone', async () => {
    const id = await create();
    const operation = await leaveOperation(db, id, { kind: 'stop', isClaimed: true });
    await bed.plane.reconciler.runOnce();
    assert.equal((await rowOf(id))?.state, 'running');
    await sql`update operations set claim_expires_at = now() where id = ${operation}`.execute(db);
    await until(async () => (await rowOf(id))?.state === 'stopped', 'once it expired it is finished');
  });

  it('a claim of a dead process is taken over, also when the clock of the database was set back', async () => {
    const id = await create();
    const operation = await leaveOperation(db, id, { kind: 'stop', isClaimed: true });
    await sql`update operations set claim_expires_at = now() + interval '1 hour' where id = ${operation}`.execute(db);
    await until(async () => (await rowOf(id))?.state === 'stopped', 'it is finished');
  });
});

describe('delete', () => {
  for (const state of MACHINE_STATES.filter((name) => name !== 'destroyed')) {
    it(`is accepted in state ${state}`, async () => {
      const id = await create();
      const holds = state === 'provisioning';
      if (!holds && state !== 'running') {
        await sql`update hosts set reserved_memory_mb = reserved_memory_mb - 1024, reserved_vcpus = reserved_vcpus - 1
          where id = ${FAKE_HOST_ID}`.execute(db);
      }
      if (state === 'error') {
        await sql`update accounts set used_machines = used_machines - 1, used_vcpus = used_vcpus - 1,
          used_memory_mb = used_memory_mb - 1024, used_storage_gb = used_storage_gb - 10 where id = ${bed.accountId}`.execute(
          db,
        );
      }
      await setState(id, state);
      // A process holds the claim on a stop but makes no progress.
      await leaveOperation(db, id, { kind: 'stop', isClaimed: true });
      const answer = await api('DELETE', `/v1/machines/${id}`);
      assert.deepEqual([answer.status, answer.json.state], [200, 'destroyed'], answer.text);
      await checkBooks(bed);
    });
  }

  it('overtakes a create that hangs, whose caller hears of it', async () => {
    host.fault('ensure', 'hangAfter', 1);
    const creating = api('POST', '/v1/machines', { body: { name: 'overtaken' } });
    const find = async () => (await api('GET', '/v1/machines?name=overtaken')).json.machines[0];
    await until(async () => (await find()) !== undefined, 'the create is under way');
    const { id } = await find();
    await until(() => host.machines.has(id), 'the host has it');
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).json.state, 'destroyed');
    host.heal();
    const answer = await creating;
    assert.equal(answer.status, 409);
    assert.match(answer.json.detail, /deleted meanwhile/);
    await until(() => !host.machines.has(id), 'what the late call made is removed');
    await checkBooks(bed);
  });

  it('while a stop hangs wins, and a late call of the old generation changes nothing', async () => {
    const id = await create();
    host.fault('ensure', 'hang', 1);
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await until(async () => isBusy(db, id), 'the stop is under way');
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    host.heal();
    assert.notEqual((await stopping).status, 200);
    assert.equal((await rowOf(id))?.state, 'destroyed');
    await until(() => !host.machines.has(id), 'what the late call made is removed');
    await checkBooks(bed);
  });

  it('racing creates and stops, many times, always converges', async () => {
    const results = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const id = await create();
        await Promise.all([
          api('POST', `/v1/machines/${id}/stop`),
          api('DELETE', `/v1/machines/${id}`),
          api('POST', `/v1/machines/${id}/start`),
        ]);
        return id;
      }),
    );
    for (const id of results) await until(async () => (await rowOf(id))?.state === 'destroyed', 'it is destroyed');
    await checkBooks(bed);
  });
});

describe('host and rows', () => {
  it('a machine that died while nobody listened becomes error, its jobs lost', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    host.isMute = true;
    host.end(id, 'failed', 'Killed by the kernel: out of memory.');
    await until(async () => (await rowOf(id))?.state === 'error', 'the reconciler saw it');
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.error, 'Killed by the kernel: out of memory.');
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    await checkBooks(bed);
  });

  it('a machine that the host lost becomes error', async () => {
    const id = await create();
    host.machines.delete(id);
    await until(async () => (await rowOf(id))?.state === 'error', 'the reconciler saw it');
    assert.match((await rowOf(id))?.error ?? '', /lost/);
    await checkBooks(bed);
  });

  it('a machine that no row knows is removed from the host', async () => {
    const id = uuidv7();
    host.plant(id);
    await until(() => !host.machines.has(id), 'it is removed');
  });

  it('a machine that another database knows is left alone', async () => {
    const ids = [randomUUID(), uuidv7({ msecs: Date.parse('2024-01-01') })];
    for (const id of ids) host.plant(id);
    const ours = uuidv7();
    host.plant(ours);
    await until(() => !host.machines.has(ours), 'ours is removed');
    for (const id of ids) assert(host.machines.delete(id), 'it is still there');
  });

  it('a host that forgot a change, since its power failed, is believed about the end (CTL-3)', async () => {
    for (const [status, state] of [
      ['stopped', 'stopped'],
      ['failed', 'error'],
    ] as const) {
      const id = await create();
      await api('POST', `/v1/machines/${id}/stop`);
      await api('POST', `/v1/machines/${id}/start`);
      const machine = host.machines.get(id);
      assert(machine);
      machine.report = { ...machine.report, generation: 1, status, reason: 'The host was restarted.' };
      await until(async () => (await rowOf(id))?.state === state, `it is ${state}`);
      await checkAll(bed);
      assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    }
  });

  it('a machine that died is never replaced, whoever is restarted (CTL-6)', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    host.end(id, 'failed', 'QEMU was killed.');
    await until(async () => (await rowOf(id))?.state === 'error', 'it is in error');
    const asked = host.callsOf('ensure');
    await host.away();
    await until(() => bed.plane.app.hosts.reachableIds().length === 0, 'the host is away');
    await host.listen();
    await until(() => bed.plane.app.hosts.reachableIds().length === 1, 'the host is back');
    const other = await bed.addReplica();
    for (const plane of [bed.plane, other]) await plane.reconciler.runOnce();
    const { state, error } = (await api('GET', `/v1/machines/${id}`)).json;
    assert.deepEqual([state, error], ['error', 'QEMU was killed.']);
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 409);
    assert.equal(host.callsOf('ensure'), asked, 'nobody asked the host to run it');
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    await checkAll(bed);
  });

  it('a machine that powered itself off is stopped, by the host, with its jobs lost, and stays so (CTL-6)', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    host.end(id, 'stopped', null);
    await until(async () => (await rowOf(id))?.state === 'stopped', 'it is stopped');
    const asked = host.callsOf('ensure');
    await bed.plane.reconciler.runOnce();
    assert.equal(host.callsOf('ensure'), asked);
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    const { activity } = (await api('GET', `/v1/machines/${id}/activity`)).json;
    const ended = activity.find(({ action }: { action: string }) => action === 'machine.stopped');
    assert.equal(ended.actor, 'system:host');
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
    await checkAll(bed);
  });

  it('a kept disk that is lost is shown as such, and is available again when it is back', async () => {
    const id = (await api('DELETE', `/v1/machines/${await create()}?preserve_storage=true`)).json.root_volume_id;
    const disk = host.volumes.get(id);
    assert(disk);
    host.volumes.delete(id);
    const shown = async () => (await api('GET', `/v1/volumes/${id}`)).json;
    await until(async () => (await shown()).state === 'error', 'it is in error');
    assert.match((await shown()).error, /lost/);
    host.volumes.set(id, disk);
    await until(async () => (await shown()).state === 'available', 'it is back');
    assert.equal((await shown()).error, null);
    host.volumes.delete(id);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
    await checkAll(bed);
  });

  it('an image that is built while the agent stays connected can be used', async () => {
    const [base] = host.info.images;
    assert(base);
    const images = async () =>
      (await api('GET', '/v1/images')).json.images.map(({ stack }: { stack: string }) => stack);
    assert.deepEqual(await images(), ['base']);
    host.info.images.push({ ...base, stack: 'new', default: false });
    await until(async () => (await images()).join() === 'base,new', 'it is listed');
    assert.equal((await api('POST', '/v1/machines', { body: { stack: 'new' } })).status, 201);
    host.info.images.pop();
    await until(async () => (await images()).join() === 'base', 'it is gone');
  });

  it('the running jobs of a machine cost one call, however many they are', async () => {
    const id = await create();
    const jobs: string[] = [];
    for (let index = 0; index < 5; index++)
      jobs.push((await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id);
    const before = host.calls.length;
    await bed.plane.reconciler.runOnce();
    const asked = host.calls.slice(before).filter(({ machineId }) => machineId === id);
    assert.deepEqual([...new Set(asked.map(({ operation }) => operation))], ['listJobs']);
    host.isMute = true;
    for (const job of jobs) host.endJob(id, job, { exit_code: 3 });
    const codes = async () =>
      (await db.selectFrom('execs').select('exit_code').where('machine_id', '=', id).execute()).map(
        (row) => row.exit_code,
      );
    await until(async () => (await codes()).join() === '3,3,3,3,3', 'all are settled');
  });

  it('a report of an older generation changes nothing', async () => {
    const id = await create();
    await api('POST', `/v1/machines/${id}/stop`);
    await api('POST', `/v1/machines/${id}/start`);
    const report = host.machines.get(id)?.report;
    assert(report);
    const { observeMachine } = await import('../src/machines/observe.ts');
    const late = { ...report, generation: report.generation - 1, status: 'failed' as const, reason: 'late' };
    assert.equal(await observeMachine(bed.plane.app, FAKE_HOST_ID, late), false);
    assert.equal((await rowOf(id))?.state, 'running');
  });

  it('jobs that ended while the agent was away are settled when it is back', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    await host.away();
    host.endJob(id, job, { exit_code: 7 });
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'running', 'the database answers');
    await host.listen();
    const settled = async () =>
      (await db.selectFrom('execs').select('exit_code').where('id', '=', job).executeTakeFirst())?.exit_code;
    await until(async () => (await settled()) === 7, 'it is settled');
  });
});
