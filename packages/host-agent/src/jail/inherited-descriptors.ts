// A process passes on every descriptor that is not marked "close on exec". Node marks all of its own, and the first ones
// that it inherited itself; a stray one of a high number, of whoever started the service, would reach every VM.
import { closeSync, readdirSync, readFileSync } from 'node:fs';

/** O_CLOEXEC as /proc/PID/fdinfo has it: octal. */
const CLOSE_ON_EXEC = 0o2000000;

/** Closes what this process would pass on without knowing of it. For the start of the agent. Returns what it closed. */
export function closeInheritedDescriptors(): number[] {
  const strays = readdirSync('/proc/self/fd')
    .map(Number)
    .filter((fd) => fd > 2 && isPassedOn(fd));
  for (const fd of strays) closeSync(fd);
  return strays;
}

function isPassedOn(fd: number): boolean {
  try {
    const flags = /^flags:\s+(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  } catch {
    // The one that the folder was listed through: closed again by now.
    return false;
  }
}
