// Takes a snapshot of a machine: what its root disk holds becomes a layer, and a record names the layers. Its memory, if asked
// for, is saved in the same moment.
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

/** A machine at a moment when nothing else is done to it. */
export type SnapshotSubject = {
  machineId: string;
  record: () => MachineRecord;
  disk: RootDisk;
  /** Undefined when it does not run. */
  running: RunningMachine | undefined;
};

export type SnapshotHost = { snapshots: SnapshotStore; layers: LayerStore; vms: VmHost; log: FreezeLog };

/**
 * Resolves when the snapshot is durable; one that is there already is left alone. Throws `conflict` when that is another
 * machine's, or there is no memory that could be saved, and like {@link freezeRunningDisk} and {@link freezeWithMemory}.
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

/** Nothing of the snapshot is left on a failure but the layer, which is the machine's. */
async function takeMemory(
  { snapshots, vms, log }: SnapshotHost,
  snapshotId: string,
  { record, disk }: SnapshotSubject,
  running: RunningMachine,
): Promise<{ record: MemoryRecord; storedBytes: number }> {
  const place = memoryPlace(snapshots.prepare(snapshotId), record().spec.memory_mb * MIB);
  try {
    const saved = await freezeWithMemory(disk, running, place, log);
    await saved.complete();
    const checks = await checksOf(place);
    const { channelToken } = running.vm;
    const { resumeFingerprint } = vms.hypervisor;
    return {
      record: { channel_token: channelToken, fingerprint: resumeFingerprint, checks },
      storedBytes: storedMemoryBytes(place),
    };
  } catch (error) {
    snapshots.remove(snapshotId);
    throw isDiskFull(error) ? diskFull(error) : snapshotFailure(error);
  }
}
