// Reads and writes the agent's files in a run directory. The directory belongs to the VM's uid, so a compromised QEMU
// can replace such a file, for example by a symlink to a secret of root or by a pipe that blocks its reader.
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openRunDirectory } from './run-directory.ts';

/**
 * Returns the content of a file as text. Throws the system's error, or when it is not a regular file or larger than
 * `maxBytes` bytes.
 */
export function readRunFile(runDir: string, name: string, maxBytes: number): string {
  return readRunBytes(runDir, name, maxBytes).toString('utf8');
}

/** Like {@link readRunFile}, but returns bytes. */
export function readRunBytes(runDir: string, name: string, maxBytes: number): Buffer {
  const path = join(runDir, name);
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.size > maxBytes) throw new Error(`${path} is not what the agent has put there`);
    // Reads no more than the size that was just checked, because the VM may still write to the file.
    const bytes = Buffer.alloc(facts.size);
    let length = 0;
    for (let read = -1; read !== 0; length += read) read = readSync(fd, bytes, length, bytes.length - length, length);
    return bytes.subarray(0, length);
  } finally {
    closeSync(fd);
  }
}

/**
 * Writes a file with mode 0600. It is written under another name and then renamed, so an existing file is replaced and
 * never written to.
 */
export function writeRunFile(runDir: string, name: string, text: string): void {
  const draft = join(runDir, `.${name}.${randomBytes(6).toString('hex')}`);
  writeFileSync(draft, text, { flag: 'wx', mode: 0o600 });
  renameSync(draft, join(runDir, name));
}

/**
 * Removes a file of the agent, or the file or symlink that the VM put in its place. Does not remove a folder of that
 * name: only a compromised QEMU can have made it, and QEMU could replace its content by symlinks while the agent
 * removes it. The whole run directory is removed when the VM has ended.
 */
export function removeRunFile(runDir: string, name: string): void {
  inRunDirectory(runDir, (path) => removeName(`${path}/${name}`));
}

/** Calls `work` with a path that refers to the opened directory even if somebody renames it meanwhile. */
export function inRunDirectory<T>(runDir: string, work: (path: string) => T): T {
  const fd = openRunDirectory(runDir);
  try {
    return work(`/proc/self/fd/${fd}`);
  } finally {
    closeSync(fd);
  }
}

/** Removes a file, a hard link or a symlink. Does nothing when it is a folder, or when there is none. */
export function removeName(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EISDIR' && code !== 'EPERM') throw error;
  }
}
