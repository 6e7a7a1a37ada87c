// Finds programs on this machine. It looks for the file and does not ask a package manager, which is faster and also
// finds programs that were installed in another way.
import { accessSync, constants } from 'node:fs';

/** Searched even when they are not on the PATH: many accounts lack the folders with system tools. */
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
