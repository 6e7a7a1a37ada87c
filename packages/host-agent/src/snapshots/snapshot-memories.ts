// Keeps the memory of snapshots that machines are started from. Each memory is loaded once and shared by all machines
// that start meanwhile. It stays loaded for later machines as far as the limit allows. Running machines have the memory
// open themselves, so closing it here does not affect them.
import { closeSync } from 'node:fs';
import type { LoadingMemory } from './memory-files.ts';

type Held = {
  memory: LoadingMemory;
  /** Bytes of host memory; undefined while loading. */
  usedBytes: number | undefined;
  users: number;
  isDropped: boolean;
  isClosed: boolean;
};

export class SnapshotMemories {
  readonly #maxBytes: number;
  /** Least recently used first. */
  readonly #held = new Map<string, Held>();

  /** `maxBytes`: limit for memory that is kept loaded for later machines. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Calls `work` with the memory of a snapshot and keeps it open meanwhile. Loads it if necessary. Throws what `load`
   * and `work` throw.
   */
  async use<T>(id: string, load: () => LoadingMemory, work: (memory: LoadingMemory) => Promise<T>): Promise<T> {
    const held = this.#held.get(id) ?? this.#begin(id, load);
    held.users++;
    try {
      return await work(held.memory);
    } finally {
      held.users--;
      if (this.#held.get(id) === held) {
        this.#held.delete(id);
        this.#held.set(id, held);
      }
      this.#closeUnused(held);
      this.#makeRoom();
    }
  }

  /**
   * Forgets a memory because its snapshot was deleted or the memory is unusable. It is closed when its last user is
   * done.
   */
  drop(id: string): void {
    const held = this.#held.get(id);
    if (!held) return;
    this.#held.delete(id);
    held.isDropped = true;
    this.#closeUnused(held);
  }

  close(): void {
    for (const id of [...this.#held.keys()]) this.drop(id);
  }

  #begin(id: string, load: () => LoadingMemory): Held {
    const held: Held = { memory: load(), usedBytes: undefined, users: 0, isDropped: false, isClosed: false };
    this.#held.set(id, held);
    const settle = (usedBytes: number) => {
      held.usedBytes = usedBytes;
      this.#closeUnused(held);
      this.#makeRoom();
    };
    held.memory.ready.then(settle, () => {
      if (this.#held.get(id) === held) this.drop(id);
      settle(0);
    });
    return held;
  }

  /**
   * Drops unused memories, least recently used first, until the limit is met. A memory larger than the limit stays
   * loaded only while machines start from it.
   */
  #makeRoom(): void {
    let total = [...this.#held.values()].reduce((sum, { usedBytes = 0 }) => sum + usedBytes, 0);
    for (const [id, { usedBytes, users }] of [...this.#held]) {
      if (total <= this.#maxBytes) return;
      if (users > 0 || usedBytes === undefined) continue;
      total -= usedBytes;
      this.drop(id);
    }
  }

  /**
   * Closes the memory only when nobody uses it. Otherwise the kernel could assign the same descriptor number to another
   * file, and a user of the memory would read that file.
   */
  #closeUnused(held: Held): void {
    if (!held.isDropped || held.users > 0 || held.usedBytes === undefined || held.isClosed) return;
    held.isClosed = true;
    closeSync(held.memory.fd);
  }
}
