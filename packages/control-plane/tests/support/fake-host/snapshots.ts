// The snapshots of a fake host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { HOST_PATHS, type HostSnapshot, type TakeSnapshot } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import type { Handle } from './calls.ts';
import { type FakeState, machineOf } from './state.ts';

export function addSnapshotRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  server.get(HOST_PATHS.snapshots, (_request, reply) =>
    handle('listSnapshots', '', reply, () => ({ snapshots: [...host.snapshots.values()] })),
  );
  type OfMachine = { Params: { id: string; snapshot_id: string }; Body: TakeSnapshot };
  server.put<OfMachine>(HOST_PATHS.machineSnapshot, ({ params, body }, reply) =>
    handle('takeSnapshot', params.id, reply, () => takeSnapshot(host, params.id, params.snapshot_id, body)),
  );
  server.delete<{ Params: { id: string } }>(HOST_PATHS.snapshot, ({ params }, reply) =>
    handle('deleteSnapshot', params.id, reply, () => {
      host.snapshots.delete(params.id);
      return undefined;
    }),
  );
}

export function snapshotOf({ snapshots }: FakeState, id: string): HostSnapshot {
  const snapshot = snapshots.get(id);
  if (!snapshot) throw new ServiceError('not_found', 'The host does not know this snapshot.');
  return snapshot;
}

function takeSnapshot(
  host: FakeState,
  machineId: string,
  id: string,
  { generation, memory }: TakeSnapshot,
): HostSnapshot {
  const known = host.snapshots.get(id);
  if (known) return known;
  const { report, wanted } = machineOf(host, machineId);
  if (generation < report.generation) throw new ServiceError('conflict', 'older generation');
  if (memory && report.status !== 'running') throw new ServiceError('conflict', 'The machine is not running.');
  if (memory && wanted.volumes?.length) throw new ServiceError('conflict', 'The machine has volumes.');
  const snapshot: HostSnapshot = {
    snapshot_id: id,
    machine_id: machineId,
    kind: memory ? 'memory' : 'disk',
    size_gb: wanted.spec.rootfs_size_gb,
    stored_bytes: memory ? 300_000_000 : 4_000_000,
  };
  host.snapshots.set(id, snapshot);
  return snapshot;
}
