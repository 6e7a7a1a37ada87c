// A root disk outlives its machine: what a delete that keeps the disk does before the machine's folder goes.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { ensureOverlay, virtualBytesOf } from '../storage/overlay.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { MachineRecord } from './record.ts';
import { DISK, type RootDisk } from './root-disk.ts';

/**
 * Makes the disk of a machine that no longer runs a volume. One that never ran gets the empty disk it would have run
 * from. Does nothing when the machine's folder is gone: then it was done before. Throws `not_found` for a disk that is not
 * whole, and like {@link VolumeStore.keep}.
 */
export async function keepDisk(
  volumes: VolumeStore,
  volumeId: string,
  { id: machine_id, disk }: { id: string; disk: RootDisk },
  record: () => MachineRecord,
): Promise<void> {
  if (!existsSync(disk.folder)) return;
  if (!volumes.has(volumeId)) {
    disk.settle();
    const damage = disk.damage();
    if (damage !== undefined) throw new ServiceError('not_found', `there is no disk to keep: ${damage}`);
    const base = { imagePath: record().image.rootfsPath, layerPaths: disk.layerPaths };
    await ensureOverlay(disk.path, base, record().spec.rootfs_size_gb);
  }
  const { spec, image, layers } = record();
  const { stack, rootfs_size_gb } = spec;
  // A root volume that never booted in a larger machine has not grown. The header is the guest's, so it may only say less.
  const size_gb = disk.isThere ? Math.min(rootfs_size_gb, sizeGbOf(disk.path)) : rootfs_size_gb;
  await volumes.keep(volumeId, disk.path, { kind: 'root', size_gb, machine_id, stack, image, layers });
}

/** The same for a folder whose record a crash of the host destroyed: the disk itself says how large it is. */
export async function keepDiskWithoutRecord(
  volumes: VolumeStore,
  volumeId: string,
  { id: machine_id, dir }: { id: string; dir: string },
): Promise<void> {
  const diskPath = join(dir, DISK);
  if (!existsSync(diskPath)) return;
  const size_gb = sizeGbOf(diskPath);
  const unknown = { stack: null, image: null, layers: null };
  await volumes.keep(volumeId, diskPath, { kind: 'root', size_gb, machine_id, ...unknown });
}

const sizeGbOf = (diskPath: string): number => Math.ceil(virtualBytesOf(diskPath) / 1024 ** 3);
