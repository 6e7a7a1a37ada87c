// Reads the guest memory of a running VM from outside its QEMU process: which pages belong to the VM alone, and their
// content. A clone shares most pages with the sealed memory that it started from. Those pages cannot change, so they
// can be copied while the VM runs.
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import koffi from 'koffi';
import { allSettled, BLOCK_BYTES, forUsedBlocks, LANES, PAGE_BYTES, writeUsed } from '../storage/sparse-file.ts';
import { isAlive, type ProcessInfo } from './process.ts';
import { QEMU_FDS } from './qemu-args.ts';
import type { QmpClient } from './qmp.ts';
import { isSealed } from './sealed-memory.ts';

/** Guest memory covered by one read of /proc/PID/pagemap: 64 MiB, which is 128 KiB of entries. */
const MAP_WINDOW_BYTES = 64 * BLOCK_BYTES;
const MAP_ENTRY_BYTES = 8;
/**
 * Flags in the highest byte of a pagemap entry (Linux, admin-guide/mm/pagemap.rst): present or swapped, and part of a
 * file.
 */
const PRESENT_OR_SWAPPED = 0xc0;
const OF_FILE = 0x20;
const IOVEC_BYTES = 16;
const MAX_RUNS = BLOCK_BYTES / PAGE_BYTES;

const libc = koffi.load('libc.so.6');
const processVmReadv = libc.func(
  'int64_t process_vm_readv(int pid, void *local, unsigned long nlocal, void *remote, unsigned long nremote, unsigned long flags)',
);

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

/**
 * Copies every block that has pages of the VM's own to the same offset of `target`, which must hold zeros. The VM must
 * be paused. Returns one byte per block, 1 if the block was copied. Throws when QEMU ends or a page cannot be read.
 */
export async function copyOwnBlocks(memory: GuestMemory, target: FileHandle): Promise<Uint8Array> {
  const copied = new Uint8Array(Math.ceil(memory.bytes / BLOCK_BYTES));
  const map = await open(`/proc/${memory.process.pid}/pagemap`, 'r');
  const blocks = ownBlocks(map, memory);
  try {
    await allSettled(Array.from({ length: LANES }, () => new Lane(memory, target).copy(blocks, copied)));
  } finally {
    await map.close();
  }
  // If QEMU has ended, its pid may belong to another process, and the copy may hold that process's memory.
  if (!isAlive(memory.process)) throw new Error('QEMU ended while its memory was read');
  return copied;
}

/** Copies the pages that the VM shares with its base, except blocks that are set in `copied`. The VM may run. */
export async function copyBaseBlocks(memory: GuestMemory, copied: Uint8Array, target: FileHandle): Promise<void> {
  if (!memory.base) return;
  await forUsedBlocks(memory.base, memory.bytes, async ({ offset, bytes }) => {
    if (copied[offset / BLOCK_BYTES] === 0) await writeUsed(target.fd, bytes, offset);
  });
}

/**
 * A block with pages of the VM's own. `offset`: position in the guest's memory. `runs`: consecutive own pages, as
 * positions within the block. All in bytes.
 */
type OwnBlock = { offset: number; length: number; runs: { from: number; to: number }[] };

/** Copies one block at a time. Several lanes run in parallel and take their blocks from the same generator. */
class Lane {
  readonly #memory: GuestMemory;
  readonly #target: FileHandle;
  readonly #buffer = Buffer.allocUnsafe(BLOCK_BYTES);
  readonly #local = Buffer.allocUnsafe(MAX_RUNS * IOVEC_BYTES);
  readonly #remote = Buffer.allocUnsafe(MAX_RUNS * IOVEC_BYTES);

  constructor(memory: GuestMemory, target: FileHandle) {
    this.#memory = memory;
    this.#target = target;
  }

  async copy(blocks: AsyncGenerator<OwnBlock>, copied: Uint8Array): Promise<void> {
    try {
      for (;;) {
        const { value: block, done } = await blocks.next();
        if (done) return;
        await writeUsed(this.#target.fd, await this.#read(block), block.offset);
        copied[block.offset / BLOCK_BYTES] = 1;
      }
    } finally {
      // Ends the generator, so that the other lanes stop after a failure.
      await blocks.return(undefined);
    }
  }

  /** Returns the block as the guest sees it: the content of the base, overwritten with the VM's own pages. */
  async #read({ offset, length, runs }: OwnBlock): Promise<Buffer> {
    const bytes = this.#buffer.subarray(0, length);
    const isWhole = runs[0]?.from === 0 && runs[0].to === length;
    const { base } = this.#memory;
    if (!isWhole && !base) bytes.fill(0);
    if (!isWhole && base && (await base.read(bytes, 0, length, offset)).bytesRead < length)
      throw new Error('the memory file that a clone started from is too short');
    this.#readRuns(this.#memory.address + offset, runs);
    return bytes;
  }

  /**
   * Reads all runs with one system call, on this thread instead of a worker. Copying a block takes a quarter of a
   * millisecond, and the guest is paused meanwhile. Throws when a page cannot be read.
   */
  #readRuns(address: number, runs: OwnBlock['runs']): void {
    const buffer = BigInt(koffi.address(this.#buffer));
    let wanted = 0;
    for (const [index, { from, to }] of runs.entries()) {
      const at = index * IOVEC_BYTES;
      this.#local.writeBigUInt64LE(buffer + BigInt(from), at);
      this.#remote.writeBigUInt64LE(BigInt(address + from), at);
      for (const vectors of [this.#local, this.#remote]) vectors.writeBigUInt64LE(BigInt(to - from), at + 8);
      wanted += to - from;
    }
    const { pid } = this.#memory.process;
    const read = Number(processVmReadv(pid, this.#local, runs.length, this.#remote, runs.length, 0));
    if (read !== wanted) throw new Error('a part of the memory of QEMU cannot be read');
  }
}

async function* ownBlocks(map: FileHandle, { address, bytes }: GuestMemory): AsyncGenerator<OwnBlock> {
  const entries = Buffer.allocUnsafe((MAP_WINDOW_BYTES / PAGE_BYTES) * MAP_ENTRY_BYTES);
  for (let window = 0; window < bytes; window += MAP_WINDOW_BYTES) {
    const windowBytes = Math.min(MAP_WINDOW_BYTES, bytes - window);
    const length = (windowBytes / PAGE_BYTES) * MAP_ENTRY_BYTES;
    const at = ((address + window) / PAGE_BYTES) * MAP_ENTRY_BYTES;
    const { bytesRead } = await map.read(entries, 0, length, at);
    if (bytesRead < length) throw new Error('the kernel does not report the pages of QEMU');
    for (let from = 0; from < windowBytes; from += BLOCK_BYTES) {
      const blockBytes = Math.min(BLOCK_BYTES, windowBytes - from);
      const runs = ownRuns(entries, from, blockBytes);
      if (runs.length > 0) yield { offset: window + from, length: blockBytes, runs };
    }
  }
}

/**
 * Finds the VM's own pages in one block, as positions within the block. `from`: the block's position in the window that
 * `entries` covers, in bytes.
 */
function ownRuns(entries: Buffer, from: number, length: number): OwnBlock['runs'] {
  const runs: OwnBlock['runs'] = [];
  let last: OwnBlock['runs'][number] | undefined;
  for (let at = 0; at < length; at += PAGE_BYTES) {
    const flags = entries[((from + at) / PAGE_BYTES) * MAP_ENTRY_BYTES + MAP_ENTRY_BYTES - 1] ?? 0;
    if ((flags & PRESENT_OR_SWAPPED) === 0 || (flags & OF_FILE) !== 0) continue;
    if (last?.to === at) last.to += PAGE_BYTES;
    else {
      last = { from: at, to: at + PAGE_BYTES };
      runs.push(last);
    }
  }
  return runs;
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
