// Keeps a stop of a machine under way while a test looks at it.
import { qemuPidOf } from '../../e2e/support/service.ts';

/**
 * Pauses the QEMU process of a machine while `work` runs. A paused process does not answer the request to shut down, so
 * a stop of the machine stays under way, until the host kills the process after 10 seconds.
 */
export async function whilePaused(machineId: string, work: () => Promise<void>): Promise<void> {
  const pid = qemuPidOf(machineId);
  process.kill(pid, 'SIGSTOP');
  try {
    await work();
  } finally {
    resume(pid);
  }
}

function resume(pid: number): void {
  try {
    process.kill(pid, 'SIGCONT');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
