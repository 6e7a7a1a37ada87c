// The volumes of a fake host: data volumes and kept root disks.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type EnsureMachine, HOST_PATHS, type HostVolume } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import type { Handle } from './calls.ts';
import type { FakeState } from './state.ts';

export function addVolumeRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  type Volume = { Params: { id: string }; Body: { size_gb: number }; Querystring: { generation?: string } };
  server.get(HOST_PATHS.volumes, (_request, reply) =>
    handle('listVolumes', '', reply, () => ({ volumes: [...host.volumes.values()] })),
  );
  server.put<Volume>(HOST_PATHS.volume, ({ params, body }, reply) =>
    handle('ensureVolume', params.id, reply, () => ensureVolume(host, params.id, body.size_gb)),
  );
  server.delete<Volume>(HOST_PATHS.volume, ({ params, query }, reply) =>
    handle('deleteVolume', params.id, reply, () =>
      deleteVolume(host, params.id, Number(query.generation ?? Number.MAX_SAFE_INTEGER)),
    ),
  );
}

function ensureVolume({ volumes, contents, removedVolumes }: FakeState, id: string, sizeGb: number): HostVolume {
  if (removedVolumes.has(id)) throw new ServiceError('conflict', 'The volume was deleted.');
  const known = volumes.get(id);
  if (known) return known;
  const volume: HostVolume = { volume_id: id, size_gb: sizeGb, kind: 'data' };
  volumes.set(id, volume);
  contents.set(id, { content: randomUUID(), generation: 1 });
  return volume;
}

function deleteVolume(host: FakeState, id: string, generation: number): void {
  host.removedVolumes.set(id, Math.max(generation, host.removedVolumes.get(id) ?? 0));
  if ((host.contents.get(id)?.generation ?? 1) > generation) return;
  if (holderOf(host, id)) throw new ServiceError('conflict', 'A machine has this volume.');
  host.volumes.delete(id);
  host.contents.delete(id);
}

/** The report of a root disk that was kept as a volume. */
export const rootVolume = (id: string, sizeGb: number): HostVolume => ({
  volume_id: id,
  size_gb: sizeGb,
  kind: 'root',
});

/** Returns the machine that has the volume plugged in. A machine whose VM died has no volumes. */
function holderOf({ machines }: FakeState, volumeId: string): string | undefined {
  const holders = [...machines].filter(
    ([, { report, wanted }]) =>
      report.status !== 'failed' && wanted.volumes?.some(({ volume_id }) => volume_id === volumeId),
  );
  return holders[0]?.[0];
}

/** Refuses a machine that plugs a stuck volume in or out. */
export function checkStuck({ stuck }: FakeState, now: EnsureMachine | undefined, wanted: EnsureMachine): void {
  for (const id of stuck) {
    const has = (of?: EnsureMachine) => of?.volumes?.some(({ volume_id }) => volume_id === id) ?? false;
    if (has(now) !== has(wanted)) throw new ServiceError('conflict', `Volume ${id} is in use by process 7 (sleep).`);
  }
}

/** Refuses a volume that another machine has, or that is not there although the machine is to run. */
export function checkVolume(
  host: FakeState,
  volumeId: string,
  machineId: string,
  desired: EnsureMachine['desired'],
): void {
  const holder = holderOf(host, volumeId);
  if (holder !== undefined && holder !== machineId)
    throw new ServiceError('conflict', `Machine ${holder} has volume ${volumeId}.`);
  if (desired === 'running' && host.volumes.get(volumeId)?.kind !== 'data')
    throw new ServiceError('not_found', `The disk of volume ${volumeId} is not there.`);
}
