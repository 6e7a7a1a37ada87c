// Limits the size of a log that a VM's process writes. QEMU logs little, but a hostile guest can make it repeat a
// message endlessly, and a compromised QEMU writes anything.
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';

/** First line of a log that was shortened. */
const CUT_MARK = '[the beginning was cut]\n';

/**
 * Shortens `file` to its last `maxBytes / 2` bytes if it is larger than `maxBytes`. The writer must have opened it in
 * append mode, and then continues at the new end; text written during the call may be lost. Does nothing when the file
 * is missing. Throws when the path is not a regular file with a single name, because the folder belongs to the VM,
 * which could have put a link there.
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
