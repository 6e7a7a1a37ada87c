// Keeps the service alive when the host is out of memory. The kernel then kills the process with the highest score:
// machines have a high score (packages/host-agent/src/jail/command-line.ts), and the service has a low score.
import { writeFileSync } from 'node:fs';
import { hasErrorCode } from '../problem.ts';

/**
 * The adjustments of a process's score (proc(5), oom_score_adj) to try, best first. -1000 would exempt the process, and
 * then a memory leak in it could crash the host. A process without CAP_SYS_RESOURCE, as in many containers, may not set
 * a value below 0.
 */
const SCORES = [-800, 0] as const;

/**
 * Gives the process, and all processes that it starts from now on, the lowest score that the host allows. If the host
 * allows none, the process keeps the score of its parent, which is still lower than that of machines.
 */
export function spareProcess(pid: number): void {
  for (const score of SCORES) if (setScore(pid, score)) return;
}

/** Returns whether the kernel accepted the score. */
function setScore(pid: number, score: number): boolean {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, String(score));
    return true;
  } catch (error) {
    // ENOENT, ESRCH: the process has ended.
    if (['EACCES', 'EPERM', 'ENOENT', 'ESRCH'].some((code) => hasErrorCode(error, code))) return false;
    throw error;
  }
}
