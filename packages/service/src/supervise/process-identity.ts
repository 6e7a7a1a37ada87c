// Identifies a process by its id and the time at which it began. The id alone is not enough, because the kernel gives
// it to another process later; both together are unique until the next boot.
import { readFileSync } from 'node:fs';

export type ProcessIdentity = { pid: number; startTime: string };

/** Field 22 of /proc/<pid>/stat, in clock ticks since boot. Undefined when the process is gone or a zombie. */
export function startTimeOf(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // Field 2 is the program's name in brackets. It may contain spaces and brackets, so count from the last bracket.
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
