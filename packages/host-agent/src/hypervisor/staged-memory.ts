// Copies a VM's own pages into memory of this process while the VM is paused, which takes 0.1 ms per megabyte. Writing
// them to a file would take ten times as long, so that is done after the VM runs again. The memory for the copy must be
// there before the pause, because the kernel needs longer to provide a page than to copy it. So `warmUp` copies the
// pages once while the VM runs.
import koffi from 'koffi';
import { allSettled, BLOCK_BYTES, PAGE_BYTES } from '../storage/sparse-file.ts';
import type { GuestMemory } from './guest-memory.ts';
import { Batch, type OwnBlock, ownBlocks, type Run } from './own-pages.ts';

/** How many copies run at the same time. One waits while two cores copy. */
const LANES = 3;

export class StagedMemory {
  readonly #memory: GuestMemory;
  /** As large as the guest's memory. Host memory is used only for the pages that were copied. */
  readonly #bytes: Buffer<ArrayBuffer>;
  readonly #address: bigint;
  /** One byte per page: 1 if the page was copied, so that its host memory is there. */
  readonly #isWarm: Uint8Array;
  /** One byte per block: 1 if the block is copied here. */
  readonly #isAdmitted: Uint8Array;
  #pagesLeft: number;

  /** `maxBytes`: about how much host memory may be used. Throws when the process cannot reserve the addresses. */
  constructor(memory: GuestMemory, maxBytes: number) {
    this.#memory = memory;
    this.#bytes = Buffer.from(new ArrayBuffer(memory.bytes));
    this.#address = BigInt(koffi.address(this.#bytes));
    this.#isWarm = new Uint8Array(memory.bytes / PAGE_BYTES);
    this.#isAdmitted = new Uint8Array(Math.ceil(memory.bytes / BLOCK_BYTES));
    this.#pagesLeft = Math.floor(maxBytes / PAGE_BYTES);
  }

  /**
   * Copies the pages that became the VM's own since the last call. The VM may run. Returns how many bytes it copied.
   */
  async warmUp(): Promise<number> {
    const before = this.#pagesLeft;
    await this.#copy((block) => (this.#admits(block) ? this.#takeCold(block) : []));
    return (before - this.#pagesLeft) * PAGE_BYTES;
  }

  /**
   * Copies all pages of the VM's own. The VM must be paused. Returns the copied blocks, and the blocks for which there
   * was no room. Throws when QEMU ends or a page cannot be read.
   */
  async copyAll(): Promise<{ staged: OwnBlock[]; left: OwnBlock[] }> {
    const staged: OwnBlock[] = [];
    const left: OwnBlock[] = [];
    await this.#copy((block) => {
      const isAdmitted = this.#admits(block);
      (isAdmitted ? staged : left).push(block);
      return isAdmitted ? block.runs : [];
    });
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

  /** Copies the pages that `choose` returns for each block. Resolves or rejects only when no copy runs any more. */
  async #copy(choose: (block: OwnBlock) => Run[]): Promise<void> {
    const batches = this.#batches(choose);
    const lane = async () => {
      try {
        for (;;) {
          const { value: batch } = await batches.next();
          if (!batch) return;
          await batch.copy(this.#memory);
        }
      } finally {
        // Ends the generator, so that the other lanes stop after a failure.
        await batches.return(undefined);
      }
    };
    await allSettled(Array.from({ length: LANES }, lane));
  }

  async *#batches(choose: (block: OwnBlock) => Run[]): AsyncGenerator<Batch> {
    let batch = new Batch();
    for await (const block of ownBlocks(this.#memory)) {
      const runs = choose(block);
      if (batch.isFullFor(runs.length)) {
        yield batch;
        batch = new Batch();
      }
      batch.add(runs, this.#memory.address + block.offset, this.#address + BigInt(block.offset));
    }
    yield batch;
  }
}
