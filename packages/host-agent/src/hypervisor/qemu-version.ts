// Finds the QEMU program and refuses versions that are too old.
import { accessSync, constants } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { CommandError, runCommand } from '../run-command.ts';

/**
 * The oldest version accepted, which is that of Debian 12. Debian's updates fix CVE-2023-6693 and CVE-2024-3446 in it;
 * older versions lack fixes against hostile guests.
 */
const OLDEST: readonly [number, number] = [7, 2];

/** Returns the absolute path of a program. Throws an error that says what to install. */
export function findExecutable(program: string, path = process.env.PATH ?? ''): string {
  const candidates = isAbsolute(program) ? [program] : path.split(delimiter).map((dir) => join(dir, program));
  for (const candidate of candidates) {
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      // Not in this folder; try the next one.
    }
  }
  throw new Error(
    `${program} was not found; install it (apt-get install qemu-system-x86) or set SANDBAR_QEMU to its path`,
  );
}

/**
 * Returns Debian's `-microvm` build of QEMU if it exists next to `qemuPath`, otherwise `qemuPath`. That build supports
 * only the microvm machine and KVM, so a guest has a quarter of the code to attack. It lacks user networking, so use it
 * only on hosts that have taps.
 */
export function preferMicrovmBuild(qemuPath: string): string {
  try {
    return findExecutable(`${qemuPath}-microvm`);
  } catch {
    return qemuPath;
  }
}

/**
 * Returns QEMU's version, for example `7.2.0`. Throws an error with instructions when QEMU does not run or is older
 * than 7.2.
 */
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
