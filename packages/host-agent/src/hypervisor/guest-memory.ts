// Finds the guest memory of a running VM from outside its QEMU process. A clone shares most pages with the sealed
// memory that it started from. Those pages cannot change, so they can be copied while the VM runs.
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { PAGE_BYTES } from '../storage/sparse-file.ts';
import type { ProcessInfo } from './process.ts';
import { QEMU_FDS } from './qemu-args.ts';
import type { QmpClient } from './qmp.ts';
import { isSealed } from './sealed-memory.ts';

/**
 * Where a guest's memory is in its QEMU process. `address`: virtual address in QEMU. `base`: the sealed memory file
 * that a clone shares pages with; undefined when all pages belong to the VM alone.
 */
export type GuestMemory = { process: ProcessInfo; address: number; bytes: number; base: FileHandle | undefined };

/**
 * Finds the guest's memory of `bytes` bytes in its QEMU process. QEMU itself names the address: a compromised QEMU can
 * name any address of its own process, and learns nothing new from the copy. Throws `conflict` when the kernel does not
 * let this agent read other processes. The caller closes `base`.
 */
export async function findGuestMemory(
  qmp: QmpClient,
  process: ProcessInfo,
  bytes: number,
  isClone: boolean,
): Promise<GuestMemory> {
  refuseUnreadable(process.pid);
  const answer = await qmp.execute('human-monitor-command', { 'command-line': 'gpa2hva 0' });
  const address = Number(/is (0x[0-9a-f]+)/.exec(typeof answer === 'string' ? answer : '')?.[1]);
  if (!Number.isSafeInteger(address) || address % PAGE_BYTES !== 0)
    throw new Error('QEMU does not say where the memory of its guest is');
  return { process, address, bytes, base: isClone ? await openBase(process.pid, bytes) : undefined };
}

/** Opens the memory file that the clone was started with. It must be sealed, or it could change while it is copied. */
async function openBase(pid: number, bytes: number): Promise<FileHandle> {
  const flags = constants.O_RDONLY | constants.O_NONBLOCK;
  const base = await open(`/proc/${pid}/fd/${QEMU_FDS.memory}`, flags);
  const facts = fstatSync(base.fd);
  if (facts.isFile() && facts.size === bytes && isSealed(base.fd)) return base;
  await base.close();
  throw new Error('QEMU no longer has the memory file that it was started with');
}

/**
 * Throws `conflict` when the kernel forbids reading the process. Root in a container may lack CAP_SYS_PTRACE. Without
 * root, the Yama security module lets a process read only its own children, and a restarted agent is not the parent any
 * more.
 */
function refuseUnreadable(pid: number): void {
  try {
    closeSync(openSync(`/proc/${pid}/mem`, constants.O_RDONLY));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
    throw new ServiceError(
      'conflict',
      "this host does not let its agent read the memory of its machines, so it cannot be saved: run it as root (in a container, with CAP_SYS_PTRACE), or with kernel.yama.ptrace_scope=0; snapshots of the disk alone don't need it",
      { cause: error },
    );
  }
}
