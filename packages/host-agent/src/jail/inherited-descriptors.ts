// Closes inherited file descriptors. A child process inherits every descriptor without the close-on-exec flag. Node
// sets the flag on its own descriptors and on the low numbers that it inherited. A high-numbered descriptor from the
// process that started the service would leak into every VM.
import { closeSync, readdirSync, readFileSync } from 'node:fs';

/** O_CLOEXEC as /proc/PID/fdinfo prints it, in octal. */
const CLOSE_ON_EXEC = 0o2000000;

/**
 * Closes all descriptors above 2 that child processes would inherit, and returns their numbers. Call this once when the
 * agent starts.
 */
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
    // This is the descriptor that listed the folder; it is closed by now.
    return false;
  }
}
