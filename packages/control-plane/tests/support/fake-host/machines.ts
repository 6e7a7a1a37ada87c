// The machines of a fake host: what it reports of them, how it makes and changes them, and how it deletes them.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type EnsureMachine, HOST_PATHS, type MachineReport } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import { addressOf } from './addresses.ts';
import type { Handle } from './calls.ts';
import { snapshotsOf } from './copies.ts';
import { loseJobs } from './jobs.ts';
import { snapshotOf } from './snapshots.ts';
import { type FakeMachine, type FakeState, machineOf, reportsOf } from './state.ts';
import { checkStuck, checkVolume, rootVolume } from './volumes.ts';

export function addMachineRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  type Machine = { Params: { id: string } };
  server.get(HOST_PATHS.machines, (_request, reply) =>
    handle('list', '', reply, () => ({ boot_id: host.info.boot_id, machines: reportsOf(host) })),
  );
  server.get<Machine>(HOST_PATHS.machine, ({ params }, reply) =>
    handle('get', params.id, reply, () => machineOf(host, params.id).report),
  );
  type EnsureQuery = { Querystring: { only_if_running?: string } };
  server.put<Machine & EnsureQuery>(HOST_PATHS.machine, ({ params, query, body }, reply) =>
    handle('ensure', params.id, reply, () => {
      const status = host.machines.get(params.id)?.report.status;
      if (query.only_if_running === 'true' && status !== 'running')
        throw new ServiceError('conflict', `the machine does not run: it is ${status}`);
      return ensureMachine(host, params.id, body as EnsureMachine);
    }),
  );
  type DeleteQuery = { Querystring: { generation: string; keep_volume_id?: string; with_snapshots?: string } };
  server.delete<Machine & DeleteQuery>(HOST_PATHS.machine, ({ params, query }, reply) =>
    handle('delete', params.id, reply, () => {
      deleteMachine(host, params.id, Number(query.generation), query.keep_volume_id);
      if (query.with_snapshots === 'true')
        for (const { snapshot_id } of snapshotsOf(host, params.id)) host.snapshots.delete(snapshot_id);
    }),
  );
}

/** Makes a machine or changes it to what is wanted. */
export function ensureMachine(host: FakeState, id: string, wanted: EnsureMachine): MachineReport {
  if ((host.destroyed.get(id) ?? 0) >= wanted.generation) throw new ServiceError('conflict', 'it was destroyed');
  const known = host.machines.get(id);
  if (known && wanted.generation < known.report.generation) throw new ServiceError('conflict', 'older generation');
  for (const { volume_id } of wanted.volumes ?? []) checkVolume(host, volume_id, id, wanted.desired);
  if (wanted.desired === 'running') checkStuck(host, known?.wanted, wanted);
  const report: MachineReport = {
    machine_id: id,
    generation: wanted.generation,
    status: wanted.desired,
    reason: null,
    isolation: host.info.isolation,
    private_ip: addressOf(host, id, wanted),
    output_revision: known?.report.output_revision ?? null,
  };
  const wasRunning = known?.report.status === 'running';
  const machine = known ? { ...known, report, wanted } : makeMachine(host, report, wanted);
  if (wanted.desired === 'running' && !wasRunning) machine.bootGeneration = wanted.generation;
  restore(host, machine, wanted);
  host.machines.set(id, machine);
  if (wanted.desired === 'stopped') loseJobs(host, machine);
  const { startPath } = host;
  const hasStarted = wanted.desired === 'running' && !wasRunning && startPath !== undefined;
  return hasStarted ? { ...report, start_path: startPath } : report;
}

function makeMachine(host: FakeState, report: MachineReport, wanted: EnsureMachine): FakeMachine {
  const { snapshot_id, root_volume_id } = wanted.spec;
  if (snapshot_id !== undefined) snapshotOf(host, snapshot_id);
  const taken = root_volume_id === undefined ? undefined : host.volumes.get(root_volume_id);
  if (root_volume_id !== undefined && taken?.kind !== 'root')
    throw new ServiceError('not_found', `The disk of volume ${root_volume_id} is not there.`);
  const disk = host.contents.get(taken?.volume_id ?? '')?.content ?? randomUUID();
  if (taken) {
    host.volumes.delete(taken.volume_id);
    host.contents.delete(taken.volume_id);
  }
  return { report, wanted, jobs: new Map(), taken, restores: [], bootGeneration: 0, disk };
}

/** Restores a snapshot, at most once for each generation. */
function restore(
  host: FakeState,
  machine: FakeMachine,
  { generation, restore_snapshot_id: snapshotId }: EnsureMachine,
): void {
  if (snapshotId === undefined || machine.restores.at(-1)?.generation === generation) return;
  snapshotOf(host, snapshotId);
  machine.restores.push({ snapshotId, generation });
  machine.bootGeneration = generation;
  loseJobs(host, machine);
}

function deleteMachine(host: FakeState, id: string, generation: number, keepVolumeId: string | undefined): void {
  const machine = host.machines.get(id);
  if (machine && generation < machine.report.generation) throw new ServiceError('conflict', 'older generation');
  host.destroyed.set(id, generation);
  if (!machine && keepVolumeId && !host.volumes.has(keepVolumeId)) throw new ServiceError('not_found', 'no disk');
  if (machine && keepVolumeId) keepDisk(host, machine, keepVolumeId);
  host.machines.delete(id);
  if (machine) loseJobs(host, machine);
}

/** Keeps the machine's disk as a volume. If the machine was made from this volume, the volume returns unchanged. */
function keepDisk(host: FakeState, { taken, wanted, disk }: FakeMachine, volumeId: string): void {
  const isReturned = taken?.volume_id === volumeId;
  host.volumes.set(volumeId, isReturned ? taken : rootVolume(volumeId, wanted.spec.rootfs_size_gb));
  host.contents.set(volumeId, { content: disk, generation: 1 });
}
