// Takes a snapshot of a machine: the content of its root disk becomes a layer, and a record names all layers. On
// request the memory is saved in the same moment.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { MachineRecord } from '../machines/record.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { syncPath } from '../storage/durable.ts';
import type { LayerStore } from '../storage/layers.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import type { VmHost } from '../vms/vm-host.ts';
import {
  type FreezeLog,
  freezeRunningDisk,
  freezeStoppedDisk,
  type RunningMachine,
  snapshotFailure,
} from './freeze-disk.ts';
import { checksOf, memoryPlace, storedMemoryBytes } from './memory-files.ts';
import type { MemoryRecord } from './snapshot-record.ts';
import { reportOf, type SnapshotStore } from './snapshot-store.ts';
import { freezeWithMemory, refuseWithoutMemory } from './take-memory.ts';

const MIB = 1024 ** 2;

/** The machine to take a snapshot of. No other operation on it may run meanwhile. */
export type SnapshotSubject = {
  machineId: string;
  record: () => MachineRecord;
  disk: RootDisk;
  /** Undefined when the machine does not run. */
  running: RunningMachine | undefined;
};

export type SnapshotHost = { snapshots: SnapshotStore; layers: LayerStore; vms: VmHost; log: FreezeLog };

/**
 * Takes the snapshot; resolves when it is durable. Does nothing when it exists already. Throws `conflict` when the id
 * belongs to another machine's snapshot, or when the machine's memory cannot be saved, and the errors of
 * {@link freezeRunningDisk} and {@link freezeWithMemory}.
 */
export async function takeSnapshot(
  host: SnapshotHost,
  snapshotId: string,
  subject: SnapshotSubject,
  withMemory: boolean,
): Promise<HostSnapshot> {
  const { machineId, record, disk, running } = subject;
  const known = host.snapshots.read(snapshotId);
  if (known && known.machine_id !== machineId)
    throw new ServiceError('conflict', `snapshot ${snapshotId} is of machine ${known.machine_id}`);
  if (known) return reportOf(snapshotId, known);
  if (withMemory) refuseWithoutMemory(record(), running !== undefined);
  const layersBefore = disk.layers.length;
  const memory =
    running && withMemory ? await takeMemory(host, snapshotId, subject, running) : await takeDisk(host, subject);
  const frozen = disk.layers.slice(layersBefore);
  for (const id of frozen) await syncPath(host.layers.pathOf(id));
  const { spec, image, layers } = record();
  const diskBytes = frozen.reduce((sum, id) => sum + host.layers.storedBytes(id), 0);
  return host.snapshots.add(snapshotId, {
    machine_id: machineId,
    kind: memory ? 'memory' : 'disk',
    size_gb: spec.rootfs_size_gb,
    stack: spec.stack,
    image,
    layers,
    vcpus: spec.vcpus,
    memory_mb: spec.memory_mb,
    stored_bytes: diskBytes + (memory?.storedBytes ?? 0),
    ...(memory ? { memory: memory.record } : {}),
  });
}

async function takeDisk(host: SnapshotHost, { disk, running }: SnapshotSubject): Promise<undefined> {
  if (running) await freezeRunningDisk(disk, running, host.log);
  else freezeStoppedDisk(disk);
}

/**
 * Saves memory and disk. After an error nothing of the snapshot is left except the new layer, which belongs to the
 * machine.
 */
async function takeMemory(
  { snapshots, log }: SnapshotHost,
  snapshotId: string,
  { record, disk }: SnapshotSubject,
  running: RunningMachine,
): Promise<{ record: MemoryRecord; storedBytes: number }> {
  const place = memoryPlace(snapshots.prepare(snapshotId), record().spec.memory_mb * MIB);
  try {
    const needs = await running.vm.resumeNeeds();
    const saved = await freezeWithMemory(disk, running, place, log);
    const checks = await checksOf(place, await saved.complete());
    return {
      record: { needs, checks },
      storedBytes: storedMemoryBytes(place),
    };
  } catch (error) {
    snapshots.remove(snapshotId);
    throw isDiskFull(error) ? diskFull(error) : snapshotFailure(error);
  }
}
