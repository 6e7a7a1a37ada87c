// Operations that stay under way: the fake host does not answer their call until the test releases it.
import assert from 'node:assert/strict';
import type { OperationRow } from '../../src/db/tables.ts';
import type { Fault, Operation } from './fake-host/calls.ts';
import type { Kind } from './pairs-table.ts';
import { until } from './postgres.ts';
import type { Scene, Scenes } from './scenes.ts';
import type { Answer, TestBed } from './test-bed.ts';

export type Row = {
  /** The host call that the fake host does not answer, so that the operation stays unfinished. */
  step: Operation;
  arrange: (scene: Scene) => Promise<void>;
  ask: (scene: Scene) => Promise<Answer>;
  status: number;
  /** The action that the operation writes to the activity feed when it succeeds. */
  entry: string;
};

/** Returns the request that begins each kind of operation, with what it needs. */
export function createRows(
  api: TestBed['api'],
  { makeMachine, makeVolume, makeSnapshot, attach, stopped }: Scenes,
): Record<Kind, Row> {
  const running = async (scene: Scene) => {
    scene.machine = await makeMachine();
  };
  return {
    create: {
      step: 'ensure',
      arrange: async () => undefined,
      ask: () => api('POST', '/v1/machines', { body: { memory_mb: 128 } }),
      status: 201,
      entry: 'machine.created',
    },
    start: {
      step: 'ensure',
      arrange: async (scene) => {
        scene.machine = await stopped();
      },
      ask: ({ machine }) => api('POST', `/v1/machines/${machine}/start`),
      status: 200,
      entry: 'machine.started',
    },
    stop: {
      step: 'ensure',
      arrange: running,
      ask: ({ machine }) => api('POST', `/v1/machines/${machine}/stop`),
      status: 200,
      entry: 'machine.stopped',
    },
    destroy: {
      step: 'delete',
      arrange: running,
      // When the disk is kept, snapshots are deleted last, so they still exist while the delete call hangs.
      ask: ({ machine }) => api('DELETE', `/v1/machines/${machine}?delete_snapshots=true&preserve_storage=true`),
      status: 200,
      entry: 'machine.destroyed',
    },
    restore: {
      step: 'ensure',
      arrange: async (scene) => {
        scene.machine = await makeMachine();
        scene.snapshot = await makeSnapshot(scene.machine);
      },
      ask: ({ snapshot }) => api('POST', `/v1/snapshots/${snapshot}/restore`),
      status: 200,
      entry: 'snapshot.restored',
    },
    snapshot: {
      step: 'takeSnapshot',
      arrange: running,
      ask: ({ machine }) => api('POST', `/v1/machines/${machine}/snapshots`),
      status: 201,
      entry: 'snapshot.created',
    },
    attach: {
      step: 'ensure',
      arrange: async (scene) => {
        scene.machine = await makeMachine();
        scene.volume = await makeVolume();
      },
      ask: ({ volume, machine }) => attach(volume, machine),
      status: 200,
      entry: 'volume.attached',
    },
    detach: {
      step: 'ensure',
      arrange: async (scene) => {
        scene.machine = await makeMachine();
        scene.volume = await makeVolume();
        assert.equal((await attach(scene.volume, scene.machine)).status, 200);
      },
      ask: ({ volume }) => api('POST', `/v1/volumes/${volume}/detach`),
      status: 200,
      entry: 'volume.detached',
    },
    delete_volume: {
      step: 'deleteVolume',
      arrange: async (scene) => {
        scene.machine = await makeMachine();
        scene.volume = await makeVolume();
      },
      ask: ({ volume }) => api('DELETE', `/v1/volumes/${volume}`),
      status: 204,
      entry: 'volume.deleted',
    },
    delete_snapshot: {
      step: 'deleteSnapshot',
      arrange: async (scene) => {
        scene.machine = await makeMachine();
        scene.snapshot = await makeSnapshot(scene.machine);
      },
      ask: ({ snapshot }) => api('DELETE', `/v1/snapshots/${snapshot}`),
      status: 204,
      entry: 'snapshot.deleted',
    },
    create_volume: {
      step: 'ensureVolume',
      arrange: running,
      ask: () => api('POST', '/v1/volumes', { body: { size_gb: 5 } }),
      status: 201,
      entry: 'volume.created',
    },
  };
}

export type UnderWay = { first: Promise<Answer>; operation: OperationRow; hasEnded: () => boolean };

/** Sends the request and returns as soon as the host has received its call, which hangs. */
export async function begin(
  { host }: TestBed,
  { unfinished }: Scenes,
  step: Operation,
  ask: () => Promise<Answer>,
  fault: Fault = 'hang',
  times = 1,
): Promise<UnderWay> {
  const before = host.calls.length;
  const others = new Set((await unfinished()).map(({ id }) => id));
  host.fault(step, fault, times);
  let ended = false;
  const first = ask().finally(() => {
    ended = true;
  });
  await until(
    () => host.calls.slice(before).some(({ operation }) => operation === step) || ended,
    'it is held',
    60_000,
  );
  if (ended) assert.fail(`it ended before its host was asked: ${(await first).text}`);
  const operation = (await unfinished()).find(({ id }) => !others.has(id));
  assert(operation);
  return { first, operation, hasEnded: () => ended };
}
