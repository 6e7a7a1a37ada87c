// A root disk: a qcow2 overlay on its image, or on the layers that lie on the image. What is below is never written, the
// overlay holds what differs.
import { closeSync, existsSync, fsyncSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { emptyOverlay } from './empty-overlay.ts';

const GIB = 1024 ** 3;

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

/** Whether a system call failed for want of disk space. */
export function isDiskFull(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
