// Guest memory that many VMs can start from and none can change. QEMU 7.2 keeps a writable descriptor of its memory
// file even when it maps the file copy-on-write; CVE-2026-24834 was a bug of this kind. Therefore the file is a sealed
// memfd: the kernel refuses writes through every descriptor, and frees the memory when the last process closes the
// file.
import { closeSync, fchmodSync, ftruncateSync } from 'node:fs';
import koffi from 'koffi';

/** Constants from linux/memfd.h and linux/fcntl.h, which Node does not export. */
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const F_GET_SEALS = 1034;
const SEALS = { shrink: 2, grow: 4, write: 8 } as const;

const libc = koffi.load('libc.so.6');
const memfdCreate = libc.func('int memfd_create(const char *name, unsigned int flags)');
const fcntl = libc.func('int fcntl(int fd, int command, int argument)');

/**
 * A memory file that is still being filled. `sealed` resolves when nobody can write to the file any more. It rejects
 * when filling or sealing failed.
 */
export type BegunMemory = { fd: number; sealed: Promise<void> };

/**
 * Creates a memory file of `bytes` bytes and lets `fill` write to it. Bytes that `fill` does not write are zero and use
 * no memory. QEMU runs as another uid and opens the file through /proc, so the file's mode admits everybody. Before the
 * file is sealed, hand it only to a QEMU whose guest does not run yet. The caller closes `fd` after `sealed` has
 * settled. Throws when the kernel cannot create the file.
 */
export function beginSealedMemory(name: string, bytes: number, fill: (fd: number) => Promise<void>): BegunMemory {
  const fd: number = memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw new Error('the kernel cannot create a memory file (memfd_create)');
  const write = async () => {
    ftruncateSync(fd, bytes);
    fchmodSync(fd, 0o666);
    await fill(fd);
    if (fcntl(fd, F_ADD_SEALS, SEALS.shrink | SEALS.grow | SEALS.write) !== 0)
      throw new Error('the memory file cannot be sealed');
  };
  return { fd, sealed: write() };
}

/**
 * Like {@link beginSealedMemory}, but waits until the file is sealed and returns its descriptor, which the caller
 * closes. Throws what `fill` throws, and when the file cannot be created or sealed.
 */
export async function makeSealedMemory(
  name: string,
  bytes: number,
  fill: (fd: number) => Promise<void>,
): Promise<number> {
  const { fd, sealed } = beginSealedMemory(name, bytes, fill);
  try {
    await sealed;
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Whether the file's content is sealed, so that no process can change it any more. */
export function isSealed(fd: number): boolean {
  const seals: number = fcntl(fd, F_GET_SEALS, 0);
  const wanted = SEALS.shrink | SEALS.grow | SEALS.write;
  return seals >= 0 && (seals & wanted) === wanted;
}
