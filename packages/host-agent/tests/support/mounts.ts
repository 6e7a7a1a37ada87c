// Reads what a process in a jail may write to.

/** Returns the mount points that are not read-only. `mountinfo`: the text of /proc/PID/mountinfo. */
export function writableMounts(mountinfo: string): (string | undefined)[] {
  return mountinfo
    .trim()
    .split('\n')
    .map((line) => line.split(' '))
    .filter(([, , , , , options]) => !options?.split(',').includes('ro'))
    .map((mount) => mount[4]);
}
