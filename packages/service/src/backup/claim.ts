// Keeps the service of a data directory from running while its files are backed up or restored.
import { homePaths } from '@sandbar/contract/home.ts';
import { findQemuBelow } from '@sandbar/host-agent/hypervisor/process.ts';
import { Problem } from '../problem.ts';
import { claimPidFile, readPidFile, removePidFile } from '../supervise/pid-file.ts';
import { isAlive } from '../supervise/process-identity.ts';

const PROCESSES = ['control-plane', 'host-agent', 'postgres'] as const;

/**
 * Runs `work` while nothing else can start the service. Throws Problem when a process or a machine of the data directory
 * runs. The folder `run` of the data directory must exist.
 */
export async function whileStopped<T>(home: string, work: () => Promise<T>): Promise<T> {
  const paths = homePaths(home);
  const supervisor = paths.pidFile('supervisor');
  // A start claims this file too, and fails while this process holds it.
  const holder = claimPidFile(supervisor);
  if (holder !== undefined) {
    throw new Problem(
      `Sandbar runs on ${home} (pid ${holder.pid}): stop it first (sandbar down), so that no file changes`,
    );
  }
  try {
    for (const name of PROCESSES) {
      const found = readPidFile(paths.pidFile(name));
      if (found === undefined || !isAlive(found)) continue;
      throw new Problem(
        `The ${name} of ${home} still runs (pid ${found.pid}): end it first, with sandbar down or systemctl stop`,
      );
    }
    const machines = findQemuBelow(home).length;
    if (machines > 0) {
      throw new Problem(
        `${machines} virtual machines of ${home} run and change their disks: stop them first (a service that runs stops them with sandbar down)`,
      );
    }
    return await work();
  } finally {
    removePidFile(supervisor);
  }
}
