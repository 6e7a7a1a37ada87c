// Handles the files of a memory snapshot: the guest's memory as a sparse file, and the device state. Both are verified
// when loaded, because a guest that continued with wrong memory would corrupt its disk.
import { createHash } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MemoryPlace } from '../hypervisor/driver.ts';
import { beginSealedMemory } from '../hypervisor/sealed-memory.ts';
import { forUsedBlocks, SparseSum, writeUsed } from '../storage/sparse-file.ts';

const MEMORY = 'memory';
const STATE = 'state';

/** Expected properties of the files. */
export type MemoryChecks = {
  /** Size of the guest's memory. */
  bytes: number;
  /** A `SparseSum` of the memory, and the SHA-256 of the device state; both as hex digits. */
  memory_sum: string;
  state_sha256: string;
};

/** Memory that is being loaded. VMs can be restored from it once `ready` resolves. */
export type LoadingMemory = {
  /** Descriptor of the memory, which exists as long as any process has it open. */
  fd: number;
  /**
   * Resolves when the memory is verified and sealed, with the host memory it occupies in bytes. Do not close the
   * descriptor before `ready` has settled.
   */
  ready: Promise<number>;
};

/** Returns the paths of a snapshot's memory files in its folder. `bytes`: size of the guest's memory. */
export function memoryPlace(dir: string, bytes: number): MemoryPlace {
  return { memoryPath: join(dir, MEMORY), statePath: join(dir, STATE), bytes };
}

/** Returns the checksums of complete files, for later verification. `memorySum`: the `SparseSum` of the memory. */
export async function checksOf({ statePath, bytes }: MemoryPlace, memorySum: string): Promise<MemoryChecks> {
  return { bytes, memory_sum: memorySum, state_sha256: await hashOf(statePath) };
}

/** Returns the space that the files take on disk, in bytes. */
export function storedMemoryBytes({ memoryPath, statePath }: MemoryPlace): number {
  return [memoryPath, statePath].reduce((sum, path) => sum + statSync(path).blocks * 512, 0);
}

/** Checks the files without reading them. Returns a sentence about the damage, or undefined. */
export function memoryDamage({ memoryPath, statePath, bytes }: MemoryPlace): string | undefined {
  if (statSync(memoryPath, { throwIfNoEntry: false })?.size !== bytes) return 'Its memory is missing or was cut.';
  return statSync(statePath, { throwIfNoEntry: false }) ? undefined : 'The state of its devices is missing.';
}

/** Removes the files, whether complete or not. */
export function removeMemoryFiles({ memoryPath, statePath }: MemoryPlace): void {
  for (const path of [memoryPath, statePath]) rmSync(path, { force: true });
}

/**
 * Copies the memory into a sealed file that no VM can change. QEMU may be started with it at once, but the guest must
 * not run before `ready` resolves. `ready` rejects when a file is missing or differs from what was saved.
 */
export function loadMemoryFiles(dir: string, checks: MemoryChecks): LoadingMemory {
  const place = memoryPlace(dir, checks.bytes);
  let usedBytes = 0;
  const { fd, sealed } = beginSealedMemory('sandbar-snapshot', checks.bytes, async (target) => {
    if ((await hashOf(place.statePath)) !== checks.state_sha256) throw new Error('its state is not what was saved');
    usedBytes = await copyMemory(place, target, checks.memory_sum);
  });
  const ready = sealed.then(() => usedBytes);
  // Callers that use the memory see the error; this prevents an unhandled rejection when nobody does.
  ready.catch(() => {});
  return { fd, ready };
}

/** Copies the memory and verifies its checksum. Returns the number of bytes that are not zero. */
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
