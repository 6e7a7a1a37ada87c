// Keeps the service alive when the host is out of memory: the kernel then kills the process with the highest score.
// Machines have a high one (packages/host-agent/src/jail/command-line.ts), the service a low one.
import { writeFileSync } from 'node:fs';
import { hasErrorCode } from '../problem.ts';

/**
 * What is added to a process's score (proc(5), oom_score_adj), best first. -1000 would exempt it, so that a leak could
 * end the host. A process without CAP_SYS_RESOURCE, as in many containers, may not have a value below 0.
 */
const SCORES = [-800, 0] as const;

/**
 * Makes the kernel spare the process, and what it starts from now on, as far as the host allows. Otherwise it keeps the
 * score of its parent, which is still below that of machines.
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
