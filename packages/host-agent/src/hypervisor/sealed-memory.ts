// Memory that many VMs start from and none can change. QEMU keeps a descriptor of its memory file open for writing, also
// when it maps a copy (7.2; CVE-2026-24834 was of this kind), so the file is a memfd whose content is sealed: a write
// through any descriptor fails, and it is gone with the last process that has it open.
import { closeSync, fchmodSync, ftruncateSync } from 'node:fs';
import koffi from 'koffi';

/** From linux/memfd.h, linux/fcntl.h and linux/prctl.h. */
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const F_GET_SEALS = 1034;
const SEALS = { shrink: 2, grow: 4, write: 8 } as const;
const PR_SET_THP_DISABLE = 41;

const libc = koffi.load('libc.so.6');
const memfdCreate = libc.func('int memfd_create(const char *name, unsigned int flags)');
const fcntl = libc.func('int fcntl(int fd, int command, int argument)');
const prctl = libc.func(
  'int prctl(int option, unsigned long two, unsigned long three, unsigned long four, unsigned long five)',
);

/** Memory that is still being written. `sealed` settles when nobody can write it any more, or with what went wrong. */
export type BegunMemory = { fd: number; sealed: Promise<void> };

/**
 * A descriptor of `bytes` of memory that `fill` writes, all the rest being zero and taking no room. Any uid may open it
 * again through /proc, as QEMU does: one that holds no guest yet, until it is sealed. The caller closes it, once `sealed` has settled.
 */
export function beginSealedMemory(name: string, bytes: number, fill: (fd: number) => Promise<void>): BegunMemory {
  const fd: number = memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw new Error('the kernel gives no memory file (memfd_create)');
  const write = async () => {
    ftruncateSync(fd, bytes);
    fchmodSync(fd, 0o666);
    await fill(fd);
    if (fcntl(fd, F_ADD_SEALS, SEALS.shrink | SEALS.grow | SEALS.write) !== 0)
      throw new Error('the memory file cannot be sealed');
  };
  return { fd, sealed: write() };
}

/** The same, sealed. Throws what `fill` throws. */
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

/** Whether nobody can change the content of a file any more. */
export function isSealed(fd: number): boolean {
  const seals: number = fcntl(fd, F_GET_SEALS, 0);
  const wanted = SEALS.shrink | SEALS.grow | SEALS.write;
  return seals >= 0 && (seals & wanted) === wanted;
}

/**
 * Turns huge pages off for this process and those it starts: QEMU asks for them for the code that it translates, 2 MiB at
 * a time, which costs a small machine 5 MB that it never uses (measured: 24 instead of 29 MB).
 */
export function disableHugePages(): void {
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) !== 0) throw new Error('huge pages cannot be turned off (prctl)');
}
