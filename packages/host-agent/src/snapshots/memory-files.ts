// The files of a memory snapshot: the guest's memory, a sparse file, and the state of the devices. Both are checked when
// they are loaded: a guest that goes on with other memory than its own would destroy what is on its disk.
import { createHash } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MemoryPlace } from '../hypervisor/driver.ts';
import { beginSealedMemory } from '../hypervisor/sealed-memory.ts';
import { forUsedBlocks, SparseSum, sumOfSparseFile, writeUsed } from '../storage/sparse-file.ts';

const MEMORY = 'memory';
const STATE = 'state';

/** What the files have to be. */
export type MemoryChecks = {
  /** Of the guest's memory. */
  bytes: number;
  /** A `SparseSum` of it, and the SHA-256 of the state; hexadecimal. */
  memory_sum: string;
  state_sha256: string;
};

/** Memory that VMs can be restored from as soon as it is `ready`. */
export type LoadingMemory = {
  /** Whoever has it open keeps the memory. */
  fd: number;
  /** Resolves with the host memory that it takes, bytes, when it is what was saved and sealed. The descriptor may be closed then. */
  ready: Promise<number>;
};

/** Where the files of a snapshot are, by its folder. */
export function memoryPlace(dir: string, bytes: number): MemoryPlace {
  return { memoryPath: join(dir, MEMORY), statePath: join(dir, STATE), bytes };
}

/** What files that are complete are to be from now on. */
export async function checksOf({ memoryPath, statePath, bytes }: MemoryPlace): Promise<MemoryChecks> {
  const [memory_sum, state_sha256] = await Promise.all([sumOfSparseFile(memoryPath, bytes), hashOf(statePath)]);
  return { bytes, memory_sum, state_sha256 };
}

/** What the files take on disk, bytes. */
export function storedMemoryBytes({ memoryPath, statePath }: MemoryPlace): number {
  return [memoryPath, statePath].reduce((sum, path) => sum + statSync(path).blocks * 512, 0);
}

/** What can be seen of them without reading them: a sentence, or undefined when nothing is wrong. */
export function memoryDamage({ memoryPath, statePath, bytes }: MemoryPlace): string | undefined {
  if (statSync(memoryPath, { throwIfNoEntry: false })?.size !== bytes) return 'Its memory is missing or was cut.';
  return statSync(statePath, { throwIfNoEntry: false }) ? undefined : 'The state of its devices is missing.';
}

/** Removes what was written of them. */
export function removeMemoryFiles({ memoryPath, statePath }: MemoryPlace): void {
  for (const path of [memoryPath, statePath]) rmSync(path, { force: true });
}

/**
 * Copies the memory to where no VM can write it; a QEMU may be started on it meanwhile, and its guest not before. `ready` rejects
 * when a file is missing or not what was saved.
 */
export function loadMemoryFiles(dir: string, checks: MemoryChecks): LoadingMemory {
  const place = memoryPlace(dir, checks.bytes);
  let usedBytes = 0;
  const { fd, sealed } = beginSealedMemory('sandbar-snapshot', checks.bytes, async (target) => {
    if ((await hashOf(place.statePath)) !== checks.state_sha256) throw new Error('its state is not what was saved');
    usedBytes = await copyMemory(place, target, checks.memory_sum);
  });
  const ready = sealed.then(() => usedBytes);
  // Whoever started on it hears of it; nobody may have.
  ready.catch(() => {});
  return { fd, ready };
}

/** Returns the bytes that are not zero. */
async function copyMemory({ memoryPath, bytes }: MemoryPlace, target: number, expectedSum: string): Promise<number> {
  const file = await open(memoryPath, 'r');
  const sum = new SparseSum();
  let usedBytes = 0;
  try {
    await forUsedBlocks(file, bytes, async (block) => {
      sum.add(block);
      const written = await writeUsed(target, block.bytes, block.offset);
      usedBytes += written;
    });
  } finally {
    await file.close();
  }
  if (sum.digest() !== expectedSum) throw new Error('its memory is not what was saved');
  return usedBytes;
}

async function hashOf(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}
