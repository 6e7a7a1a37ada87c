// Fails and repeats every step of operations on snapshots and kept root disks, and undoes it twice. Afterwards rows,
// quotas and the host must agree, and an operation that failed must leave nothing behind.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { Fault, Operation } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { claimTtlMs: 1_000, claimRenewMs: 200, reconcileMs: 50, reconcileJobsMs: 100, unknownGraceMs: 100 },
});
const { api, host } = bed;
const { db } = bed.plane.app;

afterEach(() => host.heal());

const create = async (body: object = {}): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, ...body } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const snapOf = async (machineId: string, body: object = {}): Promise<string> => {
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`, { body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const stop = async (id: string): Promise<string> => {
  assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};
const machineRow = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
const snapshotRow = (id: string) => db.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirst();
const nothingChanges = async () => {
  const query = db.selectFrom('operations').select('id').where('finished_at', 'is', null);
  return (await query.executeTakeFirst()) === undefined;
};
/** Counts machines, snapshots and volumes, so that a test can check that an undone operation left nothing. */
const counts = async () => ({
  machines: (await db.selectFrom('machines').select('id').where('state', '<>', 'destroyed').execute()).length,
  snapshots: (await db.selectFrom('snapshots').select('id').execute()).length,
  volumes: (await db.selectFrom('volumes').select('id').execute()).length,
});
/**
 * Waits until the host has only snapshots with a row (the reconciler removes others after two sightings), then checks
 * that everything agrees.
 */
async function inOrder(): Promise<void> {
  const rows = new Set((await db.selectFrom('snapshots').select('id').execute()).map((row) => row.id));
  await until(() => [...host.snapshots.keys()].every((id) => rows.has(id)), 'the host has no snapshot without a row');
  await checkAll(bed);
}

type Act = {
  name: string;
  /**
   * The host calls that the operation makes. Each of them fails in its own test. `undo` is the call that undoes the
   * operation.
   */
  steps: Operation[];
  undo?: Operation;
  prepare: () => Promise<string>;
  ask: (id: string) => Promise<Answer>;
  /** Checks the result when the operation has ended without being undone. */
  check: (id: string, answer: Answer) => Promise<void>;
};

const MAY_BE_UNDONE = async () => undefined;

const ACTS: Act[] = [
  {
    name: 'a snapshot',
    steps: ['takeSnapshot'],
    undo: 'deleteSnapshot',
    prepare: create,
    ask: (id) => api('POST', `/v1/machines/${id}/snapshots`),
    check: async (id, { status, json }) => {
      const rows = await db.selectFrom('snapshots').selectAll().where('machine_id', '=', id).execute();
      assert.deepEqual(
        rows.map((row) => row.id),
        status === 201 ? [json.id] : [],
      );
    },
  },
  {
    name: 'a snapshot with memory',
    steps: ['takeSnapshot'],
    undo: 'deleteSnapshot',
    prepare: create,
    ask: (id) => api('POST', `/v1/machines/${id}/snapshots`, { body: { memory: true } }),
    check: MAY_BE_UNDONE,
  },
  {
    name: 'the delete of a snapshot',
    steps: ['deleteSnapshot'],
    prepare: async () => snapOf(await create()),
    ask: (id) => api('DELETE', `/v1/snapshots/${id}`),
    check: async (id) => assert.equal(await snapshotRow(id), undefined),
  },
  {
    name: 'a restore of a running machine',
    steps: ['ensure'],
    prepare: async () => snapOf(await create()),
    ask: (id) => api('POST', `/v1/snapshots/${id}/restore`),
    check: async (id, { status }) => {
      const machine = String((await snapshotRow(id))?.machine_id);
      assert.equal((await machineRow(machine))?.state, 'running');
      if (status === 200) assert.equal(host.machines.get(machine)?.restores.at(-1)?.snapshotId, id);
    },
  },
  {
    name: 'a restore of a stopped machine',
    steps: ['ensure'],
    prepare: async () => snapOf(await stop(await create())),
    ask: (id) => api('POST', `/v1/snapshots/${id}/restore`),
    check: async (id) =>
      assert.equal((await machineRow(String((await snapshotRow(id))?.machine_id)))?.state, 'stopped'),
  },
  {
    name: 'a create from a snapshot',
    steps: ['ensure'],
    undo: 'delete',
    prepare: async () => snapOf(await create()),
    ask: (id) => api('POST', '/v1/machines', { body: { memory_mb: 128, snapshot_id: id } }),
    check: MAY_BE_UNDONE,
  },
  {
    name: 'a create from a root volume',
    steps: ['ensure'],
    undo: 'delete',
    prepare: async () =>
      (await api('DELETE', `/v1/machines/${await create()}?preserve_storage=true`)).json.root_volume_id,
    ask: (id) => api('POST', '/v1/machines', { body: { memory_mb: 128, root_volume_id: id, rootfs_size_gb: 20 } }),
    check: async (id) => {
      // Either a running machine or the kept volume has the disk, never both. Rows and host must agree on that.
      const volume = await db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
      const machines = await db.selectFrom('machines').selectAll().where('root_volume_id', '=', id).execute();
      const ofMachines = machines.filter((row) => row.state === 'running');
      assert.equal((volume ? 1 : 0) + ofMachines.length, 1);
      assert.equal(host.volumes.has(id), volume !== undefined);
      if (volume) assert.deepEqual([volume.state, volume.machine_id, volume.size_gb], ['available', null, 10]);
    },
  },
  {
    name: 'the delete of a machine with snapshots',
    steps: ['deleteSnapshot', 'delete'],
    prepare: async () => {
      const id = await create();
      await snapOf(id);
      await snapOf(id, { memory: true });
      return id;
    },
    ask: (id) => api('DELETE', `/v1/machines/${id}?delete_snapshots=true`),
    check: async (id) => {
      assert.equal((await machineRow(id))?.state, 'destroyed');
      const entries = await db.selectFrom('activity').selectAll().where('machine_id', '=', id).execute();
      const destroyed = entries.filter(({ action }) => action === 'machine.destroyed');
      assert.deepEqual(
        destroyed.map(({ metadata }) => metadata),
        [{ preserve_storage: false, snapshots_deleted: 2 }],
      );
      assert.equal(entries.filter(({ action }) => action === 'snapshot.deleted').length, 2);
    },
  },
  {
    name: 'the delete of a machine with snapshots that keeps its disk',
    steps: ['deleteSnapshot', 'delete'],
    prepare: async () => {
      const id = await create();
      await snapOf(id);
      return id;
    },
    ask: (id) => api('DELETE', `/v1/machines/${id}?delete_snapshots=true&preserve_storage=true`),
    check: async (id) => {
      const row = await machineRow(id);
      assert.equal(row?.state, 'destroyed');
      assert(host.volumes.has(String(row?.root_volume_id)));
    },
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
  ['acts and fails, once', 'failAfter', 1],
  ['drops before it acts, once', 'drop', 1],
  ['drops before it acts, until it is mended', 'drop', Number.POSITIVE_INFINITY],
  ['acts and drops, once', 'dropAfter', 1],
  ['acts and drops, until it is mended', 'dropAfter', Number.POSITIVE_INFINITY],
];

describe('each step of an operation on a snapshot (CTL-2)', () => {
  for (const act of ACTS) {
    for (const step of act.steps) {
      for (const [name, fault, times] of FAULTS) {
        it(`${act.name} (${step}) ${name}, then all of its steps come again: nothing is left half made`, async () => {
          const id = await act.prepare();
          const from = host.changeCount;
          host.fault(step, fault, times);
          const answer = await act.ask(id);
          host.heal();
          await bed.settled(nothingChanges);
          await act.check(id, answer);
          await inOrder();
          const before = await counts();
          host.repeatChanges(from);
          host.repeatChanges(from);
          await inOrder();
          await act.check(id, answer);
          assert.deepEqual(await counts(), before);
        });
      }
    }

    const { undo } = act;
    if (!undo) continue;
    const undoFaults: [string, Fault, number][] = [
      ['fails', 'fail', Number.POSITIVE_INFINITY],
      ['is done twice', 'dropAfter', 2],
      ['is done again and again', 'dropAfter', Number.POSITIVE_INFINITY],
    ];
    for (const [name, fault, times] of undoFaults) {
      it(`${act.name} fails, and its undo ${name}: nothing is left half made`, async () => {
        const id = await act.prepare();
        const from = host.changeCount;
        const before = await counts();
        host.fault(act.steps[0] ?? 'ensure', 'failAfter', 1);
        host.fault(undo, fault, times);
        const answer = await act.ask(id);
        assert(answer.status >= 500, answer.text);
        host.heal();
        await bed.settled(nothingChanges);
        assert.deepEqual(await counts(), before);
        host.repeatChanges(from);
        await inOrder();
        await act.check(id, answer);
      });
    }
  }
});
