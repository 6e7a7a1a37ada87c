// Finds QEMU and refuses one that is too old.
import { accessSync, constants } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { CommandError, runCommand } from '../run-command.ts';

/** Debian 12's; older ones lack fixes that a hostile guest could use (CVE-2023-6693, CVE-2024-3446 are fixed in its updates). */
const OLDEST: readonly [number, number] = [7, 2];

/** The absolute path of the program, or an error that says what to install. */
export function findExecutable(program: string, path = process.env.PATH ?? ''): string {
  const candidates = isAbsolute(program) ? [program] : path.split(delimiter).map((dir) => join(dir, program));
  for (const candidate of candidates) {
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      // The next place may have it.
    }
  }
  throw new Error(
    `${program} was not found; install it (apt-get install qemu-system-x86) or set SANDBAR_QEMU to its path`,
  );
}

/**
 * Debian's build of QEMU that knows the microvm machine and KVM only, from the same package, where it is beside
 * `qemuPath`: a quarter of the code for a guest to attack. It has no user networking, so it is for hosts with taps.
 */
export function preferMicrovmBuild(qemuPath: string): string {
  try {
    return findExecutable(`${qemuPath}-microvm`);
  } catch {
    return qemuPath;
  }
}

/** `7.2.0`, as QEMU says it. Throws with what to do when it does not run or is older than 7.2. */
export async function checkQemu(qemuPath: string): Promise<string> {
  let said: string;
  try {
    said = await runCommand(qemuPath, ['--version']);
  } catch (error) {
    const why = error instanceof CommandError ? error.message : String(error);
    throw new Error(
      `QEMU does not work: ${why}. Install it again (apt-get install --reinstall qemu-system-x86) or set SANDBAR_QEMU`,
    );
  }
  const version = /version (\d+)\.(\d+)(\S*)/.exec(said);
  if (!version)
    throw new Error(`${qemuPath} is not QEMU: it says "${said.trim().slice(0, 100)}"; set SANDBAR_QEMU to its path`);
  const [major, minor] = [Number(version[1]), Number(version[2])];
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    throw new Error(`QEMU ${major}.${minor} is too old: Sandbar needs ${OLDEST.join('.')} or newer`);
  }
  return `${major}.${minor}${version[3]}`;
}
