// Makes the root disk of a VM: a qcow2 overlay on an image, or on layers above the image. The overlay contains the
// guest's changes; the files below it are never written.
import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { emptyOverlay, type OverlayHeader, parseHeader } from './empty-overlay.ts';

const GIB = 1024 ** 3;
/**
 * Free space that a snapshot needs: some clusters of 64 KiB, the tables that refer to them, and the snapshot's records.
 */
const SPARE_BYTES = 4 * 1024 ** 2;
/** One cluster. The header and the backing file's name are in the first cluster. */
const HEADER_READ_BYTES = 64 * 1024;

/** The files below a disk: a raw image and the layers above the image, bottom first. Absolute paths. */
export type DiskBase = { imagePath: string; layerPaths: readonly string[] };

/** Makes the overlay unless the file exists. `sizeGb` in GiB. Throws like {@link makeOverlay}. */
export async function ensureOverlay(diskPath: string, base: DiskBase, sizeGb: number): Promise<void> {
  if (!existsSync(diskPath)) makeOverlay(diskPath, base, sizeGb);
}

/**
 * Makes an empty overlay durably and replaces an existing file. It is written under another name and then renamed, so
 * an incomplete overlay is never used. `sizeGb` in GiB. Throws `fleet_capacity` on a full disk.
 */
export function makeOverlay(diskPath: string, { imagePath, layerPaths }: DiskBase, sizeGb: number): void {
  const top = layerPaths.at(-1);
  const below =
    top === undefined ? { path: imagePath, format: 'raw' as const } : { path: top, format: 'qcow2' as const };
  const partial = `${diskPath}.partial`;
  rmSync(partial, { force: true });
  try {
    writeFile(partial, sizeGb * GIB, below);
    renameSync(partial, diskPath);
  } catch (error) {
    rmSync(partial, { force: true });
    throw isDiskFull(error) ? diskFull(error) : error;
  }
}

/**
 * Returns the backing file's path from the header. Use it only when nothing else tells what the disk is based on, and
 * never open it, because a guest may have changed the header. Throws when the file is not qcow2.
 */
export function backingPathOf(diskPath: string): string | undefined {
  return readHeader(diskPath).backingPath;
}

/** Returns the disk's size in bytes, as its header states. Throws when the file is not qcow2. */
export function virtualBytesOf(diskPath: string): number {
  return readHeader(diskPath).diskBytes;
}

/** Reads the header directly. qemu-img would open files that a guest may have named in the header (CVE-2024-4467). */
function readHeader(diskPath: string): OverlayHeader {
  const fd = openSync(diskPath, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const bytes = Buffer.alloc(HEADER_READ_BYTES);
    return parseHeader(bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0)));
  } finally {
    closeSync(fd);
  }
}

function writeFile(path: string, diskBytes: number, below: { path: string; format: 'raw' | 'qcow2' }): void {
  const { fileBytes, pages } = emptyOverlay(diskBytes, below);
  const fd = openSync(path, 'wx', 0o600);
  try {
    for (const { bytes, offset } of pages) writeSync(fd, bytes, 0, bytes.length, offset);
    ftruncateSync(fd, fileBytes);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Returns the error for a full disk of the host. This limit belongs to the whole fleet, so a higher quota of the
 * account does not help.
 */
export function diskFull(cause: unknown): ServiceError {
  return new ServiceError(
    'fleet_capacity',
    'the host has no disk space left: a fleet limit, not an account quota; try again later',
    {
      retryAfterSec: 60,
      cause,
    },
  );
}

/**
 * Throws `fleet_capacity` when the folder's file system has no space for the first writes to an empty overlay.
 * Otherwise QEMU would pause the guest while the guest's file systems are frozen.
 */
export function refuseFullDisk(folder: string): void {
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize < SPARE_BYTES) throw diskFull(new Error(`${bavail * bsize} bytes are left`));
}

/** Whether the host has no space left, so that trying another way would fail too. */
export function isOutOfRoom(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof ServiceError && error.code === 'fleet_capacity');
}

/** Whether a system call failed because the disk, or the disk quota, is full. */
export function isDiskFull(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
