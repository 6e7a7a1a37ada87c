// Gives a running, jailed QEMU access to one more file. QEMU sees only its run directory and the files bound at its
// start. So the agent makes the VM the owner of the file and hard-links it into the run directory until QEMU has opened
// it.
// A compromised QEMU may own that directory. Therefore the agent creates and removes names there but never follows
// them, and changes ownership only through its own path of the file. If QEMU makes more links to the file or replaces
// ours, it gains nothing: it loses access when the agent takes the file back.
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, linkSync, openSync, readdirSync } from 'node:fs';
import type { Owner } from './run-directory.ts';
import { inRunDirectory, removeName } from './run-files.ts';

const PREFIX = 'open-';

/** `name`: the path that QEMU opens, relative to its working directory. `remove` may be called more than once. */
export type RunLink = { readonly name: string; remove(): void };

/**
 * Gives `file` to `owner` with mode 0600 and hard-links it into `runDir` under a new name. The file must lie in the
 * agent's own folders, on the file system of the run directory. Throws when `file` is not a regular file or `runDir` is
 * not a folder.
 */
export function linkIntoRunDirectory(runDir: string, file: string, owner: Owner): RunLink {
  setOwner(file, owner);
  const name = `${PREFIX}${randomBytes(8).toString('hex')}`;
  // link(2) follows no symlink in the last part of either path.
  inRunDirectory(runDir, (path) => linkSync(file, `${path}/${name}`));
  return { name, remove: () => inRunDirectory(runDir, (path) => removeName(`${path}/${name}`)) };
}

/**
 * Makes the agent the owner of `file` again, with mode 0600, so that no VM can open it any more. Does nothing when the
 * file is gone.
 */
export function takeFileBack(file: string): void {
  try {
    setOwner(file, process.getuid && process.getgid ? { uid: process.getuid(), gid: process.getgid() } : undefined);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** Returns the names of links that a crashed agent left in a run directory. Empty when the directory is gone. */
export function leftRunLinks(runDir: string): string[] {
  try {
    return inRunDirectory(runDir, (path) => readdirSync(path)).filter((name) => name.startsWith(PREFIX));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/**
 * Removes links that a crashed agent left. If a compromised QEMU put a folder in place of a link, the folder stays
 * until the run directory is removed.
 */
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
