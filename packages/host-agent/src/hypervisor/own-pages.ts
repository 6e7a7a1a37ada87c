// Finds and copies the pages of a guest's memory that belong to its VM alone, through /proc/PID/pagemap and
// process_vm_readv.
import { type FileHandle, open } from 'node:fs/promises';
import { promisify } from 'node:util';
import koffi from 'koffi';
import { BLOCK_BYTES, PAGE_BYTES } from '../storage/sparse-file.ts';
import type { GuestMemory } from './guest-memory.ts';
import { isAlive } from './process.ts';

/** Guest memory covered by one read of /proc/PID/pagemap: 64 MiB, which is 128 KiB of entries. */
const MAP_WINDOW_BYTES = 64 * BLOCK_BYTES;
const MAP_ENTRY_BYTES = 8;
/**
 * Flags in the highest byte of a pagemap entry (Linux, admin-guide/mm/pagemap.rst): the page is present or swapped; the
 * page belongs to a file.
 */
const PRESENT_OR_SWAPPED = 0xc0;
const OF_FILE = 0x20;
const IOVEC_BYTES = 16;
/** Most runs that one system call accepts (IOV_MAX of Linux). */
const MAX_RUNS = 1024;
/** One system call copies about 8 MiB, in 1 ms. Larger batches would not divide evenly between the threads. */
const BATCH_BYTES = 8 * BLOCK_BYTES;

const libc = koffi.load('libc.so.6');
const processVmReadv = promisify(
  libc.func(
    'int64_t process_vm_readv(int pid, void *local, unsigned long nlocal, void *remote, unsigned long nremote, unsigned long flags)',
  ).async,
) as (...args: unknown[]) => Promise<number | bigint>;

/**
 * A block with pages of the VM's own. `offset`: position in the guest's memory. `runs`: consecutive own pages, as
 * positions within the block. All in bytes.
 */
export type OwnBlock = { offset: number; length: number; runs: Run[] };
export type Run = { from: number; to: number };

/** Yields the blocks with pages of the VM's own, in ascending order. Throws when the kernel does not report them. */
export async function* ownBlocks(memory: GuestMemory): AsyncGenerator<OwnBlock> {
  const map = await open(`/proc/${memory.process.pid}/pagemap`, 'r');
  try {
    for (let window = 0; window < memory.bytes; window += MAP_WINDOW_BYTES) {
      const windowBytes = Math.min(MAP_WINDOW_BYTES, memory.bytes - window);
      const entries = await readEntries(map, memory.address + window, windowBytes);
      for (let from = 0; from < windowBytes; from += BLOCK_BYTES) {
        const length = Math.min(BLOCK_BYTES, windowBytes - from);
        const runs = ownRuns(entries, from, length);
        if (runs.length > 0) yield { offset: window + from, length, runs };
      }
    }
  } finally {
    await map.close();
  }
}

async function readEntries(map: FileHandle, address: number, bytes: number): Promise<Buffer> {
  const entries = Buffer.allocUnsafe((bytes / PAGE_BYTES) * MAP_ENTRY_BYTES);
  const { bytesRead } = await map.read(entries, 0, entries.length, (address / PAGE_BYTES) * MAP_ENTRY_BYTES);
  if (bytesRead < entries.length) throw new Error('the kernel does not report the pages of QEMU');
  return entries;
}

/**
 * Finds the VM's own pages in one block, as positions within the block. `from`: the block's position in the window that
 * `entries` covers, in bytes.
 */
function ownRuns(entries: Buffer, from: number, length: number): Run[] {
  const runs: Run[] = [];
  let last: Run | undefined;
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

/** Pages to copy with one system call, which runs on a worker thread. */
export class Batch {
  readonly #local = Buffer.allocUnsafe(MAX_RUNS * IOVEC_BYTES);
  readonly #remote = Buffer.allocUnsafe(MAX_RUNS * IOVEC_BYTES);
  #runs = 0;
  #bytes = 0;

  /** Whether the batch has no room for another block with `runs` runs. */
  isFullFor(runs: number): boolean {
    return this.#runs + runs > MAX_RUNS || this.#bytes >= BATCH_BYTES;
  }

  /** Adds pages of a block. `from`: address of the block in QEMU. `to`: address of its copy in this process. */
  add(runs: readonly Run[], from: number, to: bigint): void {
    for (const run of runs) {
      const at = this.#runs++ * IOVEC_BYTES;
      const length = run.to - run.from;
      this.#local.writeBigUInt64LE(to + BigInt(run.from), at);
      this.#local.writeBigUInt64LE(BigInt(length), at + 8);
      this.#remote.writeBigUInt64LE(BigInt(from + run.from), at);
      this.#remote.writeBigUInt64LE(BigInt(length), at + 8);
      this.#bytes += length;
    }
  }

  /** Copies the pages. Throws when QEMU has ended or a page cannot be read. */
  async copy({ process }: GuestMemory): Promise<void> {
    const read = await processVmReadv(process.pid, this.#local, this.#runs, this.#remote, this.#runs, 0);
    // If QEMU has ended, its pid may belong to another process, and the copy may hold that process's memory.
    if (!isAlive(process)) throw new Error('QEMU ended while its memory was read');
    if (Number(read) !== this.#bytes) throw new Error('a part of the memory of QEMU cannot be read');
  }
}
