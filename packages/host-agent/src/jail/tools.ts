// The programs of the distribution that make a jail.
import { accessSync, constants, realpathSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The absolute path of a program, without symlinks. Throws with the package to install. */
export function findTool(name: string, debianPackage: string): string {
  // The tools of a system administrator are not on the PATH of every account.
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/usr/sbin', '/bin'];
  for (const folder of folders.filter((path) => path.startsWith('/'))) {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return realpathSync(join(folder, name));
    } catch {
      // The next folder may have it.
    }
  }
  throw new Error(`${name} was not found, and machines are not run without a jail: apt-get install ${debianPackage}`);
}
