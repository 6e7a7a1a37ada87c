// Determines the image and the layers that the root disk of a new machine is based on, when the machine is made from a
// snapshot or from a kept root volume.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineSpec } from '@sandbar/contract/host-api.ts';
import type { SnapshotRecord } from '../snapshots/snapshot-record.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { MachineRecord } from './record.ts';

export type Origin = Pick<MachineRecord, 'image' | 'layers'> & Partial<Pick<MachineRecord, 'resumes'>>;

/**
 * Returns the image and the layers for a machine made from a snapshot or a root volume. Throws `conflict` when the
 * snapshot or volume is not on this host, is incomplete, or is larger than the machine's disk.
 */
export function originOf(
  { snapshots, volumes }: { snapshots: SnapshotStore; volumes: VolumeStore },
  spec: MachineSpec,
): Origin {
  if (spec.snapshot_id !== undefined) {
    const { image, layers, kind } = usableSnapshot(snapshots, spec.snapshot_id, spec);
    return { image, layers, resumes: kind === 'memory' ? spec.snapshot_id : null };
  }
  const volume = spec.root_volume_id === undefined ? undefined : volumes.find(spec.root_volume_id);
  if (!volume) throw new ServiceError('conflict', `root volume ${spec.root_volume_id} is not on this host`);
  if (!volume.image || !volume.layers)
    throw new ServiceError('conflict', `root volume ${spec.root_volume_id} has lost what it stands on`);
  refuseLarger(volume.size_gb, spec);
  return { image: volume.image, layers: volume.layers };
}

/**
 * Returns the record of a snapshot. Throws `conflict` when it is not on this host, is incomplete, or is larger than the
 * disk in `spec`.
 */
export function usableSnapshot(snapshots: SnapshotStore, id: string, spec: MachineSpec): SnapshotRecord {
  const snapshot = snapshots.find(id);
  if (!snapshot) throw new ServiceError('conflict', `snapshot ${id} is not on this host, or not whole any more`);
  refuseLarger(snapshot.size_gb, spec);
  return snapshot;
}

function refuseLarger(sizeGb: number, spec: MachineSpec): void {
  if (sizeGb <= spec.rootfs_size_gb) return;
  throw new ServiceError('conflict', `the disk has ${sizeGb} GB, more than the machine's ${spec.rootfs_size_gb}`);
}
