// Makes run directories, which root creates and then gives to a VM's uid. A compromised QEMU could place a symlink
// where root is about to read or write, so nothing here follows symlinks (CVE-2026-1386 was such a bug).
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, mkdirSync, openSync } from 'node:fs';
import { relative, sep } from 'node:path';

const OPEN_FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** The owner of a run directory: a VM's uid, or undefined for the agent's own account. */
export type Owner = { uid: number; gid: number } | undefined;

/**
 * Makes `runDir` below `home`, including missing parent folders, and gives it to `owner` with mode 0700. It opens each
 * folder relative to the previous one, so nobody can swap a folder meanwhile. Throws when a symlink or a file is in the
 * way, or when another account owns a parent folder or may write to it.
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

/** Opens an existing run directory and returns the descriptor. Throws when the path is a symlink or not a folder. */
export function openRunDirectory(runDir: string): number {
  return openFolder(runDir, runDir);
}

/**
 * Gives a regular file to a VM's uid, mode 0600. Throws when it is not a regular file, or has a second hard link,
 * through which the VM could change a file that is not meant for it.
 */
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

/** Throws when other accounts may change the folder, because they could replace the run directory below it. */
function refuseForeign(fd: number, path: string): void {
  const { uid, mode } = fstatSync(fd);
  if (uid === process.getuid?.() && (mode & 0o022) === 0) return;
  closeSync(fd);
  throw new Error(`${path} may be changed by others than the agent's account: chown and chmod go-w it`);
}
