// Which process an id means. An id alone is given to another process sooner or later; with the time that the process
// began it is unique for as long as the kernel runs.
import { readFileSync } from 'node:fs';

export type ProcessIdentity = { pid: number; startTime: string };

/** Field 22 of /proc/<pid>/stat, clock ticks since boot; undefined when there is no such process or it is a zombie. */
export function startTimeOf(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // Field 2 is the name in brackets and may hold spaces and brackets: count from the last one.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' ? undefined : fields[19];
}

export function isAlive({ pid, startTime }: ProcessIdentity): boolean {
  return startTimeOf(pid) === startTime;
}

/** The arguments of a process, empty when it is gone. */
export function commandLineOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
  } catch {
    return [];
  }
}
