// A machine's root disk: a qcow2 overlay on its image. The image is never written, the overlay holds what differs.
import { existsSync, renameSync, rmSync } from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { CommandError, runCommand } from '../run-command.ts';

/**
 * Makes the overlay unless it is there. Made under another name and renamed, so that a half-made one is never booted.
 * Formats are explicit: what a guest writes is never taken for a header. Throws `fleet_capacity` on a full disk.
 */
export async function ensureOverlay(diskPath: string, imagePath: string, sizeGb: number): Promise<void> {
  if (existsSync(diskPath)) return;
  const partial = `${diskPath}.partial`;
  rmSync(partial, { force: true });
  try {
    await runCommand('qemu-img', ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', imagePath, partial, `${sizeGb}G`]);
    renameSync(partial, diskPath);
  } catch (error) {
    rmSync(partial, { force: true });
    if (error instanceof CommandError && /No space left/.test(error.message)) throw diskFull(error);
    throw error;
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
