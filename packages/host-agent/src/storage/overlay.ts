// A root disk: a qcow2 overlay on its image, or on the layers that lie on the image. What is below is never written, the
// overlay holds what differs.
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
/** Some clusters of 64 KiB, the tables that lead to them, and the records of a snapshot. */
const SPARE_BYTES = 4 * 1024 ** 2;
/** One cluster: header and name lie in the first. */
const HEADER_READ_BYTES = 64 * 1024;

/** What a disk stands on: a raw image and, bottom to top, layers on it; absolute paths. */
export type DiskBase = { imagePath: string; layerPaths: readonly string[] };

/** Makes the overlay unless it is there. Throws like {@link makeOverlay}. */
export async function ensureOverlay(diskPath: string, base: DiskBase, sizeGb: number): Promise<void> {
  if (!existsSync(diskPath)) makeOverlay(diskPath, base, sizeGb);
}

/**
 * Makes an empty overlay, durably, in the place of what is there. Made under another name and renamed, so that a
 * half-made one is never used. Throws `fleet_capacity` on a full disk.
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

/** The name of what is below, as the header says: for what cannot be known otherwise, and never to be opened. */
export function backingPathOf(diskPath: string): string | undefined {
  return readHeader(diskPath).backingPath;
}

/** The size that the header says, bytes. */
export function virtualBytesOf(diskPath: string): number {
  return readHeader(diskPath).diskBytes;
}

/** Reads the little that is needed by hand: a tool would open the files that a guest has put in a header (CVE-2024-4467). */
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

/** The host's disk is full: a limit of the fleet that no top-up lifts. */
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
 * Throws `fleet_capacity` when a guest that goes on in an empty overlay would find no room for its first writes: it would
 * stand still while its file systems are frozen.
 */
export function refuseFullDisk(folder: string): void {
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize < SPARE_BYTES) throw diskFull(new Error(`${bavail * bsize} bytes are left`));
}

/** Whether there is no room on the host: no other way of doing the same would find any. */
export function isOutOfRoom(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof ServiceError && error.code === 'fleet_capacity');
}

/** Whether a system call failed for want of disk space. */
export function isDiskFull(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
