// Run directories are made by root and then belong to a VM's uid. What is in one may be that of a hostile QEMU, which
// could put a symlink where root is about to read or write: nothing here follows one (CVE-2026-1386 was that).
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, mkdirSync, openSync } from 'node:fs';
import { relative, sep } from 'node:path';

const OPEN_FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** Whose the directory is: a VM's, or (undefined) the agent's own. */
export type Owner = { uid: number; gid: number } | undefined;

/**
 * Makes `runDir` below `home`, with what is missing in between, and gives it to `owner` with mode 0700. Each step is
 * taken from the folder opened before it, so nothing can be put in the way. Throws when a symlink or a file is there, or
 * a folder on the way belongs to somebody else or may be changed by others.
 */
export function makeRunDirectory(home: string, runDir: string, owner: Owner): void {
  const way = relative(home, runDir).split(sep);
  if (way.length === 0 || way.includes('..') || way.includes('')) throw new Error(`${runDir} is not below ${home}`);
  const fd = openBelow(home, way);
  try {
    fchmodSync(fd, 0o700);
    if (owner) fchownSync(fd, owner.uid, owner.gid);
  } finally {
    closeSync(fd);
  }
}

/** A descriptor of a run directory that is there. Throws when a symlink or a file is in its place. */
export function openRunDirectory(runDir: string): number {
  return openFolder(runDir, runDir);
}

/** Gives a regular file to a VM. Throws when it is something else, or has a second name that would be given away too. */
export function giveFile(path: string, owner: { uid: number; gid: number }): void {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.nlink !== 1) throw new Error(`${path} is not a file of its own`);
    fchownSync(fd, owner.uid, owner.gid);
    fchmodSync(fd, 0o600);
  } finally {
    closeSync(fd);
  }
}

function openBelow(home: string, way: readonly string[]): number {
  let fd = openSync(home, constants.O_RDONLY | constants.O_DIRECTORY);
  let path = home;
  for (const [index, name] of way.entries()) {
    path = `${path}/${name}`;
    const parent = fd;
    try {
      makeFolder(`/proc/self/fd/${parent}/${name}`);
      fd = openFolder(`/proc/self/fd/${parent}/${name}`, path);
    } finally {
      closeSync(parent);
    }
    if (index < way.length - 1) refuseForeign(fd, path);
  }
  return fd;
}

function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function openFolder(path: string, shownPath: string): number {
  try {
    return openSync(path, OPEN_FOLDER);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ELOOP' && code !== 'ENOTDIR') throw error;
    throw new Error(`${shownPath} is in the way of a run directory: it is not a folder, or a symlink to one`);
  }
}

/** Whoever may change a folder on the way could put their own in the place of a run directory. */
function refuseForeign(fd: number, path: string): void {
  const { uid, mode } = fstatSync(fd);
  if (uid === process.getuid?.() && (mode & 0o022) === 0) return;
  closeSync(fd);
  throw new Error(`${path} may be changed by others than the agent's account: chown and chmod go-w it`);
}
