// Removes what came from the object store and is no longer used: copies of snapshots, transfers that were given up, and
// the files of images that no machine, snapshot or kept disk names. All of it can be fetched again.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type MachineImage, readMachineRecord } from '../machines/record.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { BlobStore } from './blob-store.ts';
import { imagePaths } from './image-files.ts';
import type { ImageTransfer } from './image-transfer.ts';

/** How long a copy or a fetched file is kept after its last use. */
const KEPT_MS = 24 * 3_600_000;
/** The same while the host's disk is short. It is longer than a create takes, so no create loses its files. */
const KEPT_WHEN_SHORT_MS = 10 * 60_000;

export type UnusedOptions = {
  machinesDir: string;
  blobs: BlobStore;
  images: ImageTransfer;
  snapshots: SnapshotStore;
  volumes: VolumeStore;
  room: Pick<DiskRoom, 'isShort'>;
  log: { info(details: object, message: string): void; error(details: object, message: string): void };
};

/** Removes nothing while a record cannot be read, because it may name any file. Never throws. */
export function removeUnused(options: UnusedOptions): void {
  const { machinesDir, blobs, images, snapshots, volumes, room, log } = options;
  const keptMs = room.isShort ? KEPT_WHEN_SHORT_MS : KEPT_MS;
  try {
    const copies = [...snapshots.removeOldCopies(keptMs), ...images.removeOldCopies(keptMs)];
    const named = [...imagesOfMachines(machinesDir), ...volumes.imagesInUse(), ...images.copies()];
    named.push(...snapshots.records().map(({ image }) => image));
    const used = new Set(named.flatMap((image) => [...imagePaths(image).values()]));
    const files = blobs.removeOld(keptMs, (path) => used.has(path));
    if (copies.length + files.length > 0) log.info({ copies, files }, 'unused copies of blobs were removed');
  } catch (err) {
    log.error({ err }, 'no blob is removed, because a record cannot be read');
  }
}

function imagesOfMachines(machinesDir: string): MachineImage[] {
  const ids = existsSync(machinesDir) ? readdirSync(machinesDir) : [];
  return ids.flatMap((id) => readMachineRecord(join(machinesDir, id))?.image ?? []);
}
