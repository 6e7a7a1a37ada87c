// Which programs this machine has. By looking for the file, not by asking a package manager: it takes microseconds and
// is right however the program came here.
import { accessSync, constants } from 'node:fs';

/** The tools of a system administrator are not on the PATH of every account. */
const ALWAYS_SEARCHED = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** The absolute path of a program, or undefined. */
export function findExecutable(name: string, searchPath = process.env.PATH ?? ''): string | undefined {
  for (const folder of [...searchPath.split(':'), ...ALWAYS_SEARCHED]) {
    if (folder === '') continue;
    const file = `${folder}/${name}`;
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not in this folder.
    }
  }
  return undefined;
}
