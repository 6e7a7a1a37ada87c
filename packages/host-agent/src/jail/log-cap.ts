// Keeps a log that a VM's process writes from filling the disk. QEMU says little, but a hostile guest can make it say the
// same thing without end, and one that was taken over writes what it likes.
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';

/** Where a cut log starts. */
const CUT_MARK = '[the beginning was cut]\n';

/**
 * Cuts `file` down to its last `maxBytes / 2` when it has grown past `maxBytes`. Its writer goes on at the new end, for
 * it must have opened the file to append; what it writes while this runs may be lost. A missing file is none to cut.
 * Throws when something else than a file of its own is in the place: it is in a folder that belongs to the VM.
 */
export function trimLog(file: string, maxBytes: number): void {
  const fd = openLog(file);
  if (fd === undefined) return;
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.nlink > 1) throw new Error(`${file} is not a log file of its own`);
    if (facts.size <= maxBytes) return;
    const tail = Buffer.alloc(Math.floor(maxBytes / 2));
    const length = readSync(fd, tail, 0, tail.length, facts.size - tail.length);
    ftruncateSync(fd, 0);
    writeSync(fd, CUT_MARK);
    writeSync(fd, tail, 0, length);
  } finally {
    closeSync(fd);
  }
}

function openLog(file: string): number | undefined {
  const { O_RDWR, O_APPEND, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    return openSync(file, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
