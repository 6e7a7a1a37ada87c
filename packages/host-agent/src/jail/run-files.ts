// Files that the agent keeps in a run directory. The directory belongs to the VM's uid, so a QEMU that was taken over can
// put anything there under their names: a symlink to a file that only root may read, a pipe that never answers.
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** What a file of ours holds, as text. Throws the system's error, or when it is not a file, or longer than `maxBytes`. */
export function readRunFile(runDir: string, name: string, maxBytes: number): string {
  return readRunBytes(runDir, name, maxBytes).toString('utf8');
}

/** Like {@link readRunFile}, as bytes. */
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

/** Puts a file there as a whole, mode 0600; what was there under its name is replaced, not written to. */
export function writeRunFile(runDir: string, name: string, text: string): void {
  const draft = join(runDir, `.${name}.${randomBytes(6).toString('hex')}`);
  writeFileSync(draft, text, { flag: 'wx', mode: 0o600 });
  renameSync(draft, join(runDir, name));
}

/** Removes one of our files, or whatever was put in its place: nothing is followed. */
export function removeRunFile(runDir: string, name: string): void {
  rmSync(join(runDir, name), { recursive: true, force: true });
}
