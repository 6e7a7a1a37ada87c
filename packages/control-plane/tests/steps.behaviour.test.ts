// Fails and repeats every step of every operation, and undoes it twice. A delete must be accepted in every state,
// whatever the host does. Afterwards quotas, reservations, rows and the host must agree.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { correctMeter } from '../src/audit/mend.ts';
import type { Fault, Operation } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { isBusy, leaveOperation } from './support/operations.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { claimTtlMs: 1_000, claimRenewMs: 200, reconcileMs: 50 },
});
const { api, host, accountId } = bed;
const { db } = bed.plane.app;

afterEach(() => host.heal());

const create = async (): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128 } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const stop = async (id: string): Promise<string> => {
  assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};
const keepDisk = async (): Promise<string> =>
  (await api('DELETE', `/v1/machines/${await create()}?preserve_storage=true`)).json.root_volume_id;
const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
const volumeRow = (id: string) => db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
const countMachines = async () =>
  (await db.selectFrom('machines').select('id').where('state', '<>', 'destroyed').execute()).length;
const ledgerSum = async () =>
  (await sql<{ sum: number }>`select coalesce(sum(amount_micros), 0)::bigint as sum from ledger`.execute(db)).rows[0]
    ?.sum;

type OperationUnderTest = {
  name: string;
  /** The host call that the operation makes. `undo` is the call that undoes it. */
  step: Operation;
  undo?: Operation;
  prepare: () => Promise<string>;
  ask: (id: string) => Promise<Answer>;
  /** Returns whether the operation has ended, either done or undone. */
  hasEnded: (id: string) => Promise<boolean>;
};

const stateIs =
  (...states: (string | undefined)[]) =>
  async (id: string) => {
    const row = await rowOf(id);
    return states.includes(row?.state) && !(await isBusy(db, id));
  };

const OPERATIONS: OperationUnderTest[] = [
  {
    name: 'create',
    step: 'ensure',
    undo: 'delete',
    prepare: async () => '',
    ask: () => api('POST', '/v1/machines', { body: { memory_mb: 128 } }),
    hasEnded: async () => (await api('GET', '/v1/machines?state=provisioning')).json.machines.length === 0,
  },
  {
    name: 'stop',
    step: 'ensure',
    prepare: create,
    ask: (id) => api('POST', `/v1/machines/${id}/stop`),
    hasEnded: stateIs('stopped'),
  },
  {
    name: 'start',
    step: 'ensure',
    undo: 'ensure',
    prepare: async () => stop(await create()),
    ask: (id) => api('POST', `/v1/machines/${id}/start`),
    hasEnded: stateIs('running', 'stopped'),
  },
  {
    name: 'delete',
    step: 'delete',
    prepare: create,
    ask: (id) => api('DELETE', `/v1/machines/${id}`),
    hasEnded: stateIs('destroyed'),
  },
  {
    name: 'delete keeping the disk',
    step: 'delete',
    prepare: create,
    ask: (id) => api('DELETE', `/v1/machines/${id}?preserve_storage=true`),
    hasEnded: stateIs('destroyed'),
  },
  {
    name: 'delete of a volume',
    step: 'deleteVolume',
    prepare: keepDisk,
    ask: (id) => api('DELETE', `/v1/volumes/${id}`),
    hasEnded: async (id) => (await volumeRow(id)) === undefined,
  },
];

/**
 * Faults of host calls, and how many calls each affects. A connection that drops once has no effect, because the client
 * retries.
 */
const FAULTS: [name: string, fault: Fault, times: number][] = [
  ['fails once', 'fail', 1],
  ['fails twice', 'fail', 2],
  ['fails until it is mended', 'fail', Number.POSITIVE_INFINITY],
  ['drops before it acts, once', 'drop', 1],
  ['drops before it acts, until it is mended', 'drop', Number.POSITIVE_INFINITY],
  ['acts and drops, once', 'dropAfter', 1],
  ['acts and drops, until it is mended', 'dropAfter', Number.POSITIVE_INFINITY],
];

describe('each step of an operation on a machine (CTL-2)', () => {
  for (const operation of OPERATIONS) {
    for (const [name, fault, times] of FAULTS) {
      it(`${operation.name} ${name}, then all of its steps come again: nothing is left half made`, async () => {
        const id = await operation.prepare();
        const before = { ledger: await ledgerSum(), changes: host.changeCount };
        host.fault(operation.step, fault, times);
        await operation.ask(id);
        host.heal();
        await bed.settled(() => operation.hasEnded(id));
        await checkAll(bed);
        const machines = await countMachines();
        host.repeatChanges(before.changes);
        host.repeatChanges(before.changes);
        await checkAll(bed);
        assert.deepEqual([await countMachines(), await ledgerSum()], [machines, before.ledger]);
      });
    }

    const { undo } = operation;
    if (!undo) continue;
    const undoFaults: [string, Fault, number][] = [
      ['fails', 'fail', Number.POSITIVE_INFINITY],
      ['is done twice', 'dropAfter', 2],
      ['is done again and again', 'dropAfter', Number.POSITIVE_INFINITY],
    ];
    for (const [name, fault, times] of undoFaults) {
      it(`${operation.name} fails, and its undo ${name}: nothing is left half made`, async () => {
        const id = await operation.prepare();
        const before = { ledger: await ledgerSum(), changes: host.changeCount, machines: await countMachines() };
        // If the operation and its undo use the same host call, the second call is the undo, so both must fail.
        if (undo === operation.step) host.fault(undo, 'fail', 2);
        else {
          host.fault(operation.step, 'fail', 1);
          host.fault(undo, fault, times);
        }
        assert((await operation.ask(id)).status >= 500);
        host.heal();
        await bed.settled(async () => (await countMachines()) === before.machines && (await operation.hasEnded(id)));
        host.repeatChanges(before.changes);
        await checkAll(bed);
        assert.equal(await ledgerSum(), before.ledger);
      });
    }
  }

  it('a create that is asked for again with its key after each failure makes one machine', async () => {
    const before = await countMachines();
    const ask = () =>
      api('POST', '/v1/machines', { body: { memory_mb: 128 }, headers: { 'idempotency-key': 'again and again' } });
    for (const [, fault] of FAULTS) {
      host.fault('ensure', fault, 2);
      host.fault('delete', fault, 1);
      assert((await ask()).status >= 500);
      host.heal();
    }
    const made = await ask();
    assert.equal(made.status, 201, made.text);
    assert.equal((await ask()).json.id, made.json.id);
    assert.equal(await countMachines(), before + 1);
    await checkAll(bed);
  });
});

type State = {
  name: string;
  bring: () => Promise<string>;
  hasNoDisk?: boolean;
  /** Whether a late call of the create may make a disk before the delete is repeated. */
  mayGetDisk?: boolean;
  isBeingDeleted?: boolean;
};

/** Sends a request whose host call hangs. Returns the machine's id once the host has received the call. */
async function underWay(
  ask: () => Promise<unknown>,
  operation: Operation = 'ensure',
  fault: Fault = 'hang',
): Promise<string> {
  const before = host.calls.length;
  host.fault(operation, fault, 1);
  void ask().catch(() => undefined);
  const asked = () => host.calls.slice(before).find((call) => call.operation === operation);
  await bed.settled(() => asked() !== undefined);
  return asked()?.machineId ?? '';
}

const STATES: State[] = [
  {
    name: 'pending',
    bring: async () => {
      const id = await create();
      await sql`update machines set state = 'pending', started_at = null where id = ${id}`.execute(db);
      await correctMeter(bed.plane.app, 'machine', id);
      await sql`update hosts set reserved_memory_mb = reserved_memory_mb - 128, reserved_vcpus = reserved_vcpus - 1`.execute(
        db,
      );
      await leaveOperation(db, id, { kind: 'create', isClaimed: true });
      // Remove the machine from the host only after the row has changed: the reconciler gives up a running machine that
      // its host does not have.
      host.machines.delete(id);
      return id;
    },
    hasNoDisk: true,
  },
  {
    name: 'provisioning, by a create',
    bring: () => underWay(() => api('POST', '/v1/machines', { body: { memory_mb: 128 } })),
    hasNoDisk: true,
    mayGetDisk: true,
  },
  {
    name: 'provisioning, by a start',
    bring: async () => {
      const id = await stop(await create());
      return underWay(() => api('POST', `/v1/machines/${id}/start`));
    },
  },
  { name: 'running', bring: create },
  {
    name: 'running, while it is being stopped',
    bring: async () => {
      const id = await create();
      return underWay(() => api('POST', `/v1/machines/${id}/stop`));
    },
  },
  {
    name: 'running, while a delete of it is about to fail',
    bring: async () => {
      const id = await create();
      return underWay(() => api('DELETE', `/v1/machines/${id}`), 'delete', 'hangThenFail');
    },
    isBeingDeleted: true,
  },
  { name: 'stopped', bring: async () => stop(await create()) },
  {
    name: 'error, because it died',
    bring: async () => {
      const id = await create();
      host.end(id, 'failed', 'It died.');
      await bed.settled(stateIs('error').bind(undefined, id));
      return id;
    },
  },
  {
    name: 'error, because its host lost it',
    bring: async () => {
      const id = await create();
      host.machines.delete(id);
      await bed.settled(stateIs('error').bind(undefined, id));
      return id;
    },
    hasNoDisk: true,
  },
];

const DELETE_FAULTS: [string, Fault | undefined][] = [
  ['answers', undefined],
  ['fails', 'fail'],
  ['drops before it acts', 'drop'],
  ['acts and drops', 'dropAfter'],
  ['hangs before it acts', 'hang'],
  ['acts and hangs', 'hangAfter'],
];

describe('a delete in each state of a machine (CTL-4)', () => {
  for (const state of STATES) {
    for (const [name, fault] of DELETE_FAULTS) {
      for (const keep of [false, true]) {
        it(`${state.name}${keep ? ', keeping its disk,' : ''} while its host ${name}, is accepted and converges`, async () => {
          const volumes = host.volumes.size;
          const id = await state.bring();
          if (fault) host.fault('delete', fault);
          const before = host.calls.length;
          const deleting = api('DELETE', `/v1/machines/${id}?preserve_storage=${keep}`);
          // Let the delete that is already under way end, because a second delete waits for it.
          if (state.isBeingDeleted) host.release();
          if (fault) await bed.settled(() => host.calls.slice(before).some(({ operation }) => operation === 'delete'));
          if (fault === 'hang' || fault === 'hangAfter') host.heal();
          const answer = await deleting;
          const mayConflict = keep && state.hasNoDisk;
          assert(
            [200, 404, 500, 503].includes(answer.status) || (mayConflict && answer.status === 409),
            `${answer.status} ${answer.text}`,
          );
          host.heal();
          const ended = async () => {
            const row = await rowOf(id);
            if (row && mayConflict && row.state === 'error' && !(await isBusy(db, id))) {
              // The machine has no disk to keep, so the delete was refused. A delete without keeping must work.
              await api('DELETE', `/v1/machines/${id}`);
            }
            return row === undefined || row.state === 'destroyed';
          };
          await bed.settled(ended);
          assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 404);
          assert(!host.machines.has(id));
          const kept = host.volumes.size - volumes;
          const expected = keep && !state.hasNoDisk && !state.isBeingDeleted ? 1 : 0;
          if (!(keep && state.mayGetDisk)) assert.equal(kept, expected, 'a disk is kept exactly when that was asked');
          await checkAll(bed);
        });
      }
    }
  }
});

describe('what comes late (CTL-5)', () => {
  it('a stop whose operation lost its claim does not end the machine that was started since', async () => {
    const id = await create();
    await underWay(() => api('POST', `/v1/machines/${id}/stop`));
    // Simulate that the process of the stop stalls: its claim expires, and the reconciler finishes the stop.
    await sql`update operations set claim_token = gen_random_uuid(), claim_expires_at = now() - interval '1 second'
      where machine_id = ${id} and finished_at is null`.execute(db);
    await bed.settled(() => stateIs('stopped')(id));
    const started = await api('POST', `/v1/machines/${id}/start`);
    assert.equal(started.status, 200, started.text);
    const late = host.callsOf('ensure');
    host.heal();
    await bed.settled(async () => !(await isBusy(db, id)));
    assert.equal(
      host.machines.get(id)?.report.status,
      'running',
      'the late stop reached the host, and changed nothing',
    );
    assert.equal((await rowOf(id))?.state, 'running');
    assert.equal(host.callsOf('ensure'), late, 'nobody had to start it again');
    await checkAll(bed);
  });

  it('every call of a machine’s earlier generations, again and again, changes nothing', async () => {
    const from = host.changeCount;
    const id = await create();
    for (let round = 0; round < 3; round++) {
      await stop(id);
      assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
    }
    const wanted = host.machines.get(id)?.report;
    host.repeatChanges(from, host.changeCount - 1);
    assert.deepEqual(host.machines.get(id)?.report, wanted);
    await checkAll(bed);
    assert.equal((await rowOf(id))?.account_id, accountId);
  });

  it('a stop and a start of a machine that is destroyed do not bring it back', async () => {
    const from = host.changeCount;
    const id = await stop(await create());
    await api('POST', `/v1/machines/${id}/start`);
    await api('DELETE', `/v1/machines/${id}`);
    host.repeatChanges(from);
    assert(!host.machines.has(id));
    await checkAll(bed);
  });
});
