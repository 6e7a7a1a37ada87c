// Saves the memory and devices of a running VM, which continues afterwards. The VM is paused only while its own pages
// are copied within memory and the disk is switched. Everything else happens before or after the pause.
//
//   prepare (VM runs) ─▶ stop ─▶ devices ─▶ own pages + whileStopped (the disk) ─▶ cont ─▶ complete: write all to files
import { type FileHandle, open, writeFile } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import koffi from 'koffi';
import { syncPath } from '../storage/durable.ts';
import { allSettled, BLOCK_BYTES, forUsedBlocks, LANES, SparseSum, writeUsed } from '../storage/sparse-file.ts';
import { readDeviceState } from './device-state.ts';
import type { MemoryPlace, MemorySave } from './driver.ts';
import { findGuestMemory, type GuestMemory } from './guest-memory.ts';
import { Batch, type OwnBlock } from './own-pages.ts';
import type { ProcessInfo } from './process.ts';
import type { QmpClient } from './qmp.ts';
import { StagedMemory } from './staged-memory.ts';

/** Part of the memory available to this process that the copy of a VM's pages may use by default. */
const STAGING_SHARE = 0.25;
/**
 * Pages become the VM's own during the first copy. Further rounds copy them before the pause, because the first copy of
 * a page takes longer than a repeated one (0.5 ms more for each megabyte). The rounds end when one copies less than
 * FEW_BYTES, or after MAX_ROUNDS.
 */
const FEW_BYTES = 4 * 1024 * 1024;
const MAX_ROUNDS = 3;

/** A VM whose memory can be saved. `isClone`: the VM was itself restored from saved memory and shares pages with it. */
export type SavedVm = { process: ProcessInfo; runDir: string; isClone: boolean };

/** Implements {@link Vm.prepareMemory}. `maxBytes`: about how much memory the copy of the VM's pages may use. */
export async function prepareMemory(
  qmp: QmpClient,
  vm: SavedVm,
  place: MemoryPlace,
  maxBytes = process.availableMemory() * STAGING_SHARE,
): Promise<MemorySave> {
  const memory = await findGuestMemory(qmp, vm.process, place.bytes, vm.isClone);
  let target: FileHandle | undefined;
  let stage: StagedMemory | undefined;
  try {
    target = await open(place.memoryPath, 'wx', 0o600);
    await target.truncate(place.bytes);
    stage = new StagedMemory(memory, maxBytes);
    await stage.warmUp();
    return new QemuMemorySave(qmp, vm.runDir, place, { memory, target, stage });
  } catch (error) {
    stage?.free();
    await Promise.all([target?.close(), memory.base?.close()]);
    throw error;
  }
}

class QemuMemorySave implements MemorySave {
  readonly #qmp: QmpClient;
  readonly #runDir: string;
  readonly #place: MemoryPlace;
  readonly #memory: GuestMemory;
  readonly #target: FileHandle;
  readonly #stage: StagedMemory;
  readonly #sum = new SparseSum();
  /** One byte per block: 1 if the block has pages of the VM's own. */
  readonly #isOwn: Uint8Array;
  #staged: OwnBlock[] = [];
  #devices: Buffer | undefined;

  constructor(
    qmp: QmpClient,
    runDir: string,
    place: MemoryPlace,
    { memory, target, stage }: { memory: GuestMemory; target: FileHandle; stage: StagedMemory },
  ) {
    this.#qmp = qmp;
    this.#runDir = runDir;
    this.#place = place;
    this.#memory = memory;
    this.#target = target;
    this.#stage = stage;
    this.#isOwn = new Uint8Array(Math.ceil(place.bytes / BLOCK_BYTES));
  }

  async catchUp(): Promise<void> {
    for (let round = 1; round <= MAX_ROUNDS; round++) if ((await this.#stage.warmUp()) < FEW_BYTES) return;
  }

  async save(whileStopped: () => Promise<void>): Promise<void> {
    await stopped(this.#qmp, async () => {
      const devices = await readDeviceState(this.#qmp, this.#runDir);
      await allSettled([this.#copyOwn(), whileStopped()]);
      this.#devices = devices;
    });
  }

  async complete(): Promise<string> {
    try {
      if (!this.#devices) throw new Error('the memory was not saved');
      await writeFile(this.#place.statePath, this.#devices, { flag: 'wx', mode: 0o600 });
      await inLanes(this.#staged, (block, scratch) => this.#write(block, this.#stage.bytesOf(block), scratch));
      if (this.#memory.base)
        await forUsedBlocks(this.#memory.base, this.#place.bytes, async (block) => {
          if (this.#isOwn[block.offset / BLOCK_BYTES] === 1) return;
          this.#sum.add(block);
          await writeUsed(this.#target.fd, block.bytes, block.offset);
        });
      await Promise.all([this.#target.sync(), syncPath(this.#place.statePath)]);
      return this.#sum.digest();
    } finally {
      await this.abandon();
    }
  }

  async abandon(): Promise<void> {
    this.#stage.free();
    await Promise.all([this.#target.close(), this.#memory.base?.close()]);
  }

  /** Copies the VM's own pages. Writes blocks without room in the staged memory to the file at once: 1 ms each. */
  async #copyOwn(): Promise<void> {
    const { staged, left } = await this.#stage.copyAll();
    for (const { offset } of [...staged, ...left]) this.#isOwn[offset / BLOCK_BYTES] = 1;
    this.#staged = staged;
    await inLanes(left, async (block, scratch) => {
      const pages = Buffer.allocUnsafe(block.length);
      const batch = new Batch();
      batch.add(block.runs, this.#memory.address + block.offset, BigInt(koffi.address(pages)));
      await batch.copy(this.#memory);
      await this.#write(block, pages, scratch);
    });
  }

  /** Writes a block as the guest sees it: the content of the base, overwritten with the VM's own `pages`. */
  async #write({ offset, length, runs }: OwnBlock, pages: Buffer, scratch: Buffer): Promise<void> {
    const { base } = this.#memory;
    const isWhole = runs[0]?.from === 0 && runs[0].to === length;
    const bytes = isWhole ? pages : scratch.subarray(0, length);
    if (!isWhole) {
      if (!base) bytes.fill(0);
      else if ((await base.read(bytes, 0, length, offset)).bytesRead < length)
        throw new Error('the memory file that a clone started from is too short');
      for (const { from, to } of runs) pages.copy(bytes, from, from, to);
    }
    this.#sum.add({ offset, bytes });
    await writeUsed(this.#target.fd, bytes, offset);
  }
}

/** Calls `work` for every block, for several in parallel. `scratch`: a buffer of one block that the call may use. */
async function inLanes(
  blocks: readonly OwnBlock[],
  work: (block: OwnBlock, scratch: Buffer) => Promise<void>,
): Promise<void> {
  const left = blocks.values();
  const lane = async () => {
    const scratch = Buffer.allocUnsafe(BLOCK_BYTES);
    for (const block of left) await work(block, scratch);
  };
  await allSettled(Array.from({ length: LANES }, lane));
}

/** Runs `work` while the vCPUs are paused. They run again afterwards, also after an error. */
async function stopped(qmp: QmpClient, work: () => Promise<void>): Promise<void> {
  await refuseUnlessRunning(qmp);
  try {
    await qmp.execute('stop');
    await work();
  } finally {
    await qmp.execute('cont');
  }
}

/**
 * Throws `conflict` unless the vCPUs run. A guest that powered off, or waits for disk space, must not be resumed by
 * `cont`.
 */
async function refuseUnlessRunning(qmp: QmpClient): Promise<void> {
  const { running, status } = Object(await qmp.execute('query-status')) as { running?: unknown; status?: unknown };
  if (running === true) return;
  const why = status === 'io-error' ? 'it waits for disk space on the host' : 'it has just ended';
  throw new ServiceError('conflict', `the memory of the machine cannot be saved: ${why}`);
}
