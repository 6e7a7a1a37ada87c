// Reads the state of a VM's devices: everything that a restore needs besides the memory. QEMU's sandbox lets it write
// only into its own run directory, so it writes a file there. A compromised QEMU may put anything in the place of that
// file, or make it endless, so the file is opened without following links and has a size limit.
import { randomBytes } from 'node:crypto';
import { readRunBytes, removeRunFile } from '../jail/run-files.ts';
import type { QmpClient } from './qmp.ts';

/** Largest device state accepted. It is 26 KB with one vCPU, and a few KB more with each further vCPU. */
export const MAX_STATE_BYTES = 64 * 1024 * 1024;

/**
 * Returns the device state of a VM whose vCPUs are paused. Throws QEMU's reason, and when the state is larger than
 * 64 MiB or not a regular file.
 */
export async function readDeviceState(qmp: QmpClient, runDir: string): Promise<Buffer> {
  const name = `state-${randomBytes(8).toString('hex')}`;
  try {
    // With `live: true` QEMU would release its disks, as at the end of a migration.
    await qmp.execute('xen-save-devices-state', { filename: name, live: false });
    return readRunBytes(runDir, name, MAX_STATE_BYTES);
  } finally {
    removeRunFile(runDir, name);
  }
}
