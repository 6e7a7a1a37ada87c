// A jailed QEMU sees its run directory and what was bound at its start, nothing else. A file that it is to open while it
// runs gets a second name there for the moment of opening, and becomes the VM's own. The directory may belong to a hostile
// QEMU: names in it are made and removed, never followed; what is given away is the file that the agent's own path names.
// A QEMU that makes more names of the file, or replaces ours, only misleads itself: they are of no use to it once the file
// is the agent's again.
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  linkSync,
  openSync,
  readdirSync,
  unlinkSync,
} from 'node:fs';
import { type Owner, openRunDirectory } from './run-directory.ts';

const PREFIX = 'open-';

/** `name`: what QEMU opens, relative to its working directory. `remove` may be called again. */
export type RunLink = { readonly name: string; remove(): void };

/**
 * Gives `file`, which lies in the agent's own folders on the file system of the run directory, to `owner` with mode 0600,
 * and links it into `runDir` under a name that nothing there has. Throws when either is not what it should be.
 */
export function linkIntoRunDirectory(runDir: string, file: string, owner: Owner): RunLink {
  setOwner(file, owner);
  const name = `${PREFIX}${randomBytes(8).toString('hex')}`;
  // A link is made without following a symlink at either end.
  inRunDirectory(runDir, (path) => linkSync(file, `${path}/${name}`));
  return { name, remove: () => inRunDirectory(runDir, (path) => removeName(`${path}/${name}`)) };
}

/** Makes `file` the agent's own again, mode 0600: no VM can open it any more. One that is gone is left alone. */
export function takeFileBack(file: string): void {
  try {
    setOwner(file, process.getuid && process.getgid ? { uid: process.getuid(), gid: process.getgid() } : undefined);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** Names of links that an agent that died left in a run directory. One that is gone has none. */
export function leftRunLinks(runDir: string): string[] {
  try {
    return inRunDirectory(runDir, (path) => readdirSync(path)).filter((name) => name.startsWith(PREFIX));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Removes links that were left; what a hostile QEMU put in their place stays until its directory goes. */
export function removeRunLinks(runDir: string): void {
  for (const name of leftRunLinks(runDir)) inRunDirectory(runDir, (path) => removeName(`${path}/${name}`));
}

function setOwner(file: string, owner: Owner): void {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    if (!fstatSync(fd).isFile()) throw new Error(`${file} is not a file`);
    fchmodSync(fd, 0o600);
    if (owner) fchownSync(fd, owner.uid, owner.gid);
  } finally {
    closeSync(fd);
  }
}

/** `work` gets a path that stays that very directory, whatever its name becomes meanwhile. */
function inRunDirectory<T>(runDir: string, work: (path: string) => T): T {
  const fd = openRunDirectory(runDir);
  try {
    return work(`/proc/self/fd/${fd}`);
  } finally {
    closeSync(fd);
  }
}

/** Removes a file, a link or a symlink; a folder, which can only be a hostile QEMU's, stays. */
function removeName(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EISDIR' && code !== 'EPERM') throw error;
  }
}
