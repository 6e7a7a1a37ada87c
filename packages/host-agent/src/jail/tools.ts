// Finds the distribution's programs that the jail and the network need.
import { accessSync, constants, realpathSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Returns the absolute path of a program, without symlinks. Throws an error that names the package to install. */
export function findTool(name: string, debianPackage: string): string {
  // The PATH of some accounts lacks the folders of system tools, such as /usr/sbin.
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/usr/sbin', '/bin'];
  for (const folder of folders.filter((path) => path.startsWith('/'))) {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return realpathSync(join(folder, name));
    } catch {
      // Not in this folder; try the next one.
    }
  }
  throw new Error(`${name} was not found, and machines are not run without a jail: apt-get install ${debianPackage}`);
}
