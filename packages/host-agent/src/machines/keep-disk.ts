// Turns the root disk of a machine into a volume, when the machine is deleted but its disk is kept. This happens before
// the machine's folder is removed.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { ensureOverlay, virtualBytesOf } from '../storage/overlay.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { MachineRecord } from './record.ts';
import { DISK, type RootDisk } from './root-disk.ts';

/**
 * Turns the root disk of a stopped machine into the volume `volumeId`. If the machine has never run, creates its empty
 * disk first. Does nothing when the machine's folder is gone, because then an earlier call has already made the volume.
 * Throws `not_found` when the disk is incomplete, and everything that {@link VolumeStore.keep} throws.
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
  // The disk is smaller than `rootfs_size_gb` if it was made from a smaller root volume and has not been booted since.
  // Its header has its real size. A hostile guest may have changed the header, so use that size only if it is smaller.
  const size_gb = disk.isThere ? Math.min(rootfs_size_gb, sizeGbOf(disk.path)) : rootfs_size_gb;
  await volumes.keep(volumeId, disk.path, { kind: 'root', size_gb, machine_id, stack, image, layers });
}

/**
 * Like {@link keepDisk}, for a machine whose record was destroyed by a crash of the host. The size comes from the
 * header of the disk.
 */
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
