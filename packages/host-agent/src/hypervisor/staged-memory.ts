// Copies a VM's own pages into memory of this process while the VM is paused, which takes 0.1 ms per megabyte. Writing
// the pages to a file would take ten times as long, so the caller does that after the VM runs again. The kernel needs
// longer to provide a page of memory than to copy it, so the memory for the copy must exist before the pause. That is
// why `warmUp` copies the pages once while the VM runs.
import koffi from 'koffi';
import { allSettled, BLOCK_BYTES, PAGE_BYTES } from '../storage/sparse-file.ts';
import type { GuestMemory } from './guest-memory.ts';
import { Batch, type OwnBlock, ownBlocks, type Run } from './own-pages.ts';

/** How many threads copy the pages that `warmUp` has found. One more thread copies pages found in the pause. */
const LANES = 2;

export class StagedMemory {
  readonly #memory: GuestMemory;
  /** As large as the guest's memory. Host memory is used only for the pages that were copied. */
  readonly #bytes: Buffer<ArrayBuffer>;
  readonly #address: bigint;
  /** One byte per page: 1 if the page was copied before, so that its copy has host memory. */
  readonly #isWarm: Uint8Array;
  /** One byte per block: 1 if there is room for the block, so that it is copied here. */
  readonly #isAdmitted: Uint8Array;
  #pagesLeft: number;
  /** Batches of all pages that `warmUp` has copied. The pause runs them again. */
  readonly #warm: Batch[] = [];

  /** `maxBytes`: about how much host memory may be used. Throws when the process cannot reserve the addresses. */
  constructor(memory: GuestMemory, maxBytes: number) {
    this.#memory = memory;
    this.#bytes = Buffer.from(new ArrayBuffer(memory.bytes));
    this.#address = BigInt(koffi.address(this.#bytes));
    this.#isWarm = new Uint8Array(memory.bytes / PAGE_BYTES);
    this.#isAdmitted = new Uint8Array(Math.ceil(memory.bytes / BLOCK_BYTES));
    this.#pagesLeft = Math.floor(maxBytes / PAGE_BYTES);
  }

  /** Copies the pages that became the VM's own since the last call. The VM may run. Returns the number of bytes. */
  async warmUp(): Promise<number> {
    const before = this.#pagesLeft;
    for await (const batch of this.#coldBatches(() => {})) {
      this.#warm.push(batch);
      await batch.copy(this.#memory);
    }
    return (before - this.#pagesLeft) * PAGE_BYTES;
  }

  /**
   * Copies all pages of the VM's own. The VM must be paused. Returns the copied blocks, and the blocks for which there
   * was no room. Throws when QEMU ends or a page cannot be read. No copy is running afterwards.
   */
  async copyAll(): Promise<{ staged: OwnBlock[]; left: OwnBlock[] }> {
    const staged: OwnBlock[] = [];
    const left: OwnBlock[] = [];
    const warm = this.#warm.values();
    const copyWarm = async () => {
      for (const batch of warm) await batch.copy(this.#memory);
    };
    const copyCold = async () => {
      const cold = this.#coldBatches((block, isAdmitted) => (isAdmitted ? staged : left).push(block));
      for await (const batch of cold) await batch.copy(this.#memory);
    };
    await allSettled([copyCold(), ...Array.from({ length: LANES }, copyWarm)]);
    return { staged, left };
  }

  /** Returns the copy of a block. Only the VM's own pages in it have content. */
  bytesOf({ offset, length }: OwnBlock): Buffer {
    return this.#bytes.subarray(offset, offset + length);
  }

  /** Frees the memory. No copy may be running, and nobody may use the bytes any more. */
  free(): void {
    if (!this.#bytes.buffer.detached) this.#bytes.buffer.transfer(0);
  }

  #admits({ offset }: OwnBlock): boolean {
    const index = offset / BLOCK_BYTES;
    if (this.#pagesLeft > 0) this.#isAdmitted[index] = 1;
    return this.#isAdmitted[index] === 1;
  }

  /** Returns the pages of a block that were not copied yet, and counts them as copied. */
  #takeCold({ offset, runs }: OwnBlock): Run[] {
    const cold: Run[] = [];
    let last: Run | undefined;
    for (const run of runs)
      for (let from = run.from; from < run.to; from += PAGE_BYTES) {
        const page = (offset + from) / PAGE_BYTES;
        if (this.#isWarm[page] === 1) continue;
        this.#isWarm[page] = 1;
        this.#pagesLeft--;
        if (last?.to === from) last.to += PAGE_BYTES;
        else {
          last = { from, to: from + PAGE_BYTES };
          cold.push(last);
        }
      }
    return cold;
  }

  /** Finds the pages that were not copied yet. Calls `onBlock` for every block with pages of the VM's own. */
  async *#coldBatches(onBlock: (block: OwnBlock, isAdmitted: boolean) => void): AsyncGenerator<Batch> {
    let batch = new Batch();
    for await (const block of ownBlocks(this.#memory)) {
      const isAdmitted = this.#admits(block);
      onBlock(block, isAdmitted);
      const runs = isAdmitted ? this.#takeCold(block) : [];
      if (batch.isFullFor(runs.length)) {
        yield batch;
        batch = new Batch();
      }
      batch.add(runs, this.#memory.address + block.offset, this.#address + BigInt(block.offset));
    }
    yield batch;
  }
}
