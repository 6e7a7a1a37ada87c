// The memory of snapshots that machines are being made from: loaded once, shared by all that start meanwhile and, as far as
// the bound allows, by those that come later. A machine that runs has the memory open itself.
import { closeSync } from 'node:fs';
import type { LoadingMemory } from './memory-files.ts';

type Held = {
  memory: LoadingMemory;
  /** Undefined while it is loaded. */
  usedBytes: number | undefined;
  users: number;
  isDropped: boolean;
  isClosed: boolean;
};

export class SnapshotMemories {
  readonly #maxBytes: number;
  /** The last used is last. */
  readonly #held = new Map<string, Held>();

  /** `maxBytes`: of what is held for machines to come. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Runs `work` with the memory of a snapshot, which stays open meanwhile. Throws what `load` and `work` throw. */
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

  /** The snapshot is deleted, or its memory was of no use. */
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

  /** One that is larger than the bound stays for as long as machines start from it, and no longer. */
  #makeRoom(): void {
    let total = [...this.#held.values()].reduce((sum, { usedBytes = 0 }) => sum + usedBytes, 0);
    for (const [id, { usedBytes, users }] of [...this.#held]) {
      if (total <= this.#maxBytes) return;
      if (users > 0 || usedBytes === undefined) continue;
      total -= usedBytes;
      this.drop(id);
    }
  }

  /** A number that is closed while somebody counts on it would be given to the next file that is opened. */
  #closeUnused(held: Held): void {
    if (!held.isDropped || held.users > 0 || held.usedBytes === undefined || held.isClosed) return;
    held.isClosed = true;
    closeSync(held.memory.fd);
  }
}
