// Takes a snapshot of a machine's root disk: what it holds becomes a layer, and a record names the layers.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { MachineRecord } from '../machines/record.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { syncPath } from '../storage/durable.ts';
import type { LayerStore } from '../storage/layers.ts';
import { type FreezeLog, freezeRunningDisk, freezeStoppedDisk } from './freeze-disk.ts';
import { reportOf, type SnapshotStore } from './snapshot-store.ts';

/** A machine at a moment when nothing else is done to it. */
export type SnapshotSubject = {
  machineId: string;
  record: () => MachineRecord;
  disk: RootDisk;
  /** Undefined when it does not run. */
  running: { vm: Vm; guest: Guest } | undefined;
};

export type SnapshotHost = { snapshots: SnapshotStore; layers: LayerStore; log: FreezeLog };

/**
 * Resolves when the snapshot is durable; one that is there already is left alone. Throws `conflict` when that is another
 * machine's, and like {@link freezeRunningDisk}.
 */
export async function takeDiskSnapshot(
  host: SnapshotHost,
  snapshotId: string,
  subject: SnapshotSubject,
): Promise<HostSnapshot> {
  const { machineId, record, disk, running } = subject;
  const known = host.snapshots.read(snapshotId);
  if (known && known.machine_id !== machineId)
    throw new ServiceError('conflict', `snapshot ${snapshotId} is of machine ${known.machine_id}`);
  if (known) return reportOf(snapshotId, known);
  const layersBefore = disk.layers.length;
  if (running) await freezeRunningDisk(disk, running.vm, running.guest, host.log);
  else freezeStoppedDisk(disk);
  const frozen = disk.layers.slice(layersBefore);
  for (const id of frozen) await syncPath(host.layers.pathOf(id));
  const { spec, image, layers } = record();
  return host.snapshots.add(snapshotId, {
    machine_id: machineId,
    kind: 'disk',
    size_gb: spec.rootfs_size_gb,
    stack: spec.stack,
    image,
    layers,
    vcpus: spec.vcpus,
    memory_mb: spec.memory_mb,
    stored_bytes: frozen.reduce((sum, id) => sum + host.layers.storedBytes(id), 0),
  });
}
