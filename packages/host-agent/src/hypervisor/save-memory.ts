// Saves the memory and devices of a running VM, which continues afterwards. The VM is paused while the pages that
// belong to it alone are copied (about 1 ms per megabyte). Pages shared with its template are copied after it runs
// again.
//
//   stop ─▶ devices ─▶ own pages ─▶ whileStopped (the disk) ─▶ cont ─▶ (complete) shared pages ─▶ durable
import { type FileHandle, open, writeFile } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { syncPath } from '../storage/durable.ts';
import { readDeviceState } from './device-state.ts';
import type { MemoryPlace, SavedMemory } from './driver.ts';
import { copyBaseBlocks, copyOwnBlocks, findGuestMemory, type GuestMemory } from './guest-memory.ts';
import type { ProcessInfo } from './process.ts';
import type { QmpClient } from './qmp.ts';

/** A VM whose memory can be saved. `isClone`: the VM was itself restored from saved memory and shares pages with it. */
export type SavedVm = { process: ProcessInfo; runDir: string; isClone: boolean };

/** Implements {@link Vm.saveMemory}. */
export async function saveMemory(
  qmp: QmpClient,
  vm: SavedVm,
  place: MemoryPlace,
  whileStopped: () => Promise<void>,
): Promise<SavedMemory> {
  const memory = await findGuestMemory(qmp, vm.process, place.bytes, vm.isClone);
  const files = new MemoryFiles(memory, place);
  try {
    await files.begin();
    const state = await stopped(qmp, async () => {
      const devices = await readDeviceState(qmp, vm.runDir);
      await files.copyOwn();
      await whileStopped();
      return devices;
    });
    await writeFile(place.statePath, state, { flag: 'wx', mode: 0o600 });
    return files;
  } catch (error) {
    await files.abandon();
    throw error;
  }
}

/** The two files of a saved memory while they are being written. */
class MemoryFiles implements SavedMemory {
  readonly #memory: GuestMemory;
  readonly #place: MemoryPlace;
  #target: FileHandle | undefined;
  #copied: Uint8Array = new Uint8Array();

  constructor(memory: GuestMemory, place: MemoryPlace) {
    this.#memory = memory;
    this.#place = place;
  }

  async begin(): Promise<void> {
    this.#target = await open(this.#place.memoryPath, 'wx', 0o600);
    await this.#target.truncate(this.#place.bytes);
  }

  async copyOwn(): Promise<void> {
    if (this.#target) this.#copied = await copyOwnBlocks(this.#memory, this.#target);
  }

  async complete(): Promise<void> {
    try {
      if (this.#target) await copyBaseBlocks(this.#memory, this.#copied, this.#target);
      await Promise.all([this.#target?.sync(), syncPath(this.#place.statePath)]);
    } finally {
      await this.abandon();
    }
  }

  async abandon(): Promise<void> {
    await this.#target?.close();
    await this.#memory.base?.close();
  }
}

/** Runs `work` while the vCPUs are paused. They run again afterwards, also after an error. */
async function stopped<T>(qmp: QmpClient, work: () => Promise<T>): Promise<T> {
  await refuseUnlessRunning(qmp);
  try {
    await qmp.execute('stop');
    return await work();
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
