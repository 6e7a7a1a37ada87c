// The requests that arrive while an operation is under way.
import assert from 'node:assert/strict';
import type { Column, Kind, MoveKind } from './pairs-table.ts';
import type { Scene, Scenes } from './scenes.ts';
import type { Answer, TestBed } from './test-bed.ts';

export type SecondRequest = {
  /** Creates the volume or snapshot that the request needs, unless the operation `kind` has one already. */
  prepare?: (scene: Scene, kind: Kind | MoveKind) => Promise<void>;
  ask: (scene: Scene) => Promise<Answer>;
  /** The action that the request writes to the activity feed when it succeeds. */
  entry?: string;
};

export function createRequests(
  api: TestBed['api'],
  { makeVolume, makeSnapshot, attach }: Scenes,
): Record<Column, SecondRequest> {
  const withSnapshot = async (scene: Scene, kind: Kind | MoveKind) => {
    if (scene.snapshot === '' && kind !== 'snapshot') scene.snapshot = await makeSnapshot(scene.machine);
  };
  /** Creates a volume for the request, attached to the machine, unless the operation already has a volume. */
  const withVolume = async (scene: Scene, kind: Kind | MoveKind) => {
    if (scene.volume !== '' || kind === 'create_volume') return;
    scene.volume = await makeVolume();
    if (kind !== 'create') assert.equal((await attach(scene.volume, scene.machine)).status, 200);
  };
  return {
    start: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/start`), entry: 'machine.started' },
    stop: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/stop`), entry: 'machine.stopped' },
    destroy: {
      ask: ({ machine }) => api('DELETE', `/v1/machines/${machine}?delete_snapshots=true`),
      entry: 'machine.destroyed',
    },
    'restore the same': {
      prepare: withSnapshot,
      ask: ({ snapshot }) => api('POST', `/v1/snapshots/${snapshot}/restore`),
      entry: 'snapshot.restored',
    },
    'restore another': {
      prepare: async (scene) => {
        scene.otherSnapshot = await makeSnapshot(scene.machine);
      },
      ask: ({ otherSnapshot }) => api('POST', `/v1/snapshots/${otherSnapshot}/restore`),
      entry: 'snapshot.restored',
    },
    snapshot: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/snapshots`), entry: 'snapshot.created' },
    'attach the same': {
      prepare: withVolume,
      ask: ({ volume, machine }) => attach(volume, machine),
      entry: 'volume.attached',
    },
    'attach another': {
      prepare: async (scene) => {
        scene.otherVolume = await makeVolume();
      },
      ask: ({ otherVolume, machine }) => attach(otherVolume ?? '', machine),
      entry: 'volume.attached',
    },
    detach: {
      prepare: withVolume,
      ask: ({ volume }) => api('POST', `/v1/volumes/${volume}/detach`),
      entry: 'volume.detached',
    },
    'delete the volume': {
      prepare: withVolume,
      ask: ({ volume }) => api('DELETE', `/v1/volumes/${volume}`),
      entry: 'volume.deleted',
    },
    'delete the snapshot': {
      prepare: withSnapshot,
      ask: ({ snapshot }) => api('DELETE', `/v1/snapshots/${snapshot}`),
      entry: 'snapshot.deleted',
    },
    exec: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } }) },
    PATCH: { ask: ({ machine }) => api('PATCH', `/v1/machines/${machine}`, { body: { name: 'renamed' } }) },
    GET: { ask: ({ machine }) => api('GET', `/v1/machines/${machine}`) },
  };
}
