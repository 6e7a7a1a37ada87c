// Reads and writes the agent's files in a run directory. The directory belongs to the VM's uid, so a compromised QEMU
// can replace such a file, for example by a symlink to a secret of root or by a pipe that blocks its reader.
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

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
    return readFileSync(fd).subarray(0, maxBytes);
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

/** Removes a file of the agent, or whatever the VM put in its place. Does not follow symlinks. */
export function removeRunFile(runDir: string, name: string): void {
  rmSync(join(runDir, name), { recursive: true, force: true });
}
