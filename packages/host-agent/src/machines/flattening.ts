// Keeps the chain of layers below a running machine's disk short: reads get slower with its length. A long one is copied
// into the disk in the background and then forgotten. Whatever else is asked of the disk comes first: a copy that is cut
// short has done no harm, and begins again where it was.
import { statfsSync } from 'node:fs';
import type { Vm } from '../hypervisor/driver.ts';
import type { LayerStore } from '../storage/layers.ts';
import type { RootDisk } from './root-disk.ts';

/** Reads of 4k through 8 layers take as long as through one; through 20 they take a third longer. */
export const MAX_LAYERS = 8;
/** A quarter of what a slow disk does, so that machines do not feel it. */
const BYTES_PER_SEC = 64 * 1024 ** 2;
/** Left to the machines when a chain is copied. */
const SPARE_BYTES = 1024 ** 3;

export type FlatteningOptions = {
  machineId: string;
  disk: RootDisk;
  layers: LayerStore;
  /** Runs work in the machine's queue. */
  enqueue: (work: () => Promise<void>) => Promise<void>;
  /** Layers may be nobody's any more. */
  onFlat: () => void;
  log: { info(details: object, message: string): void; warn(details: object, message: string): void };
};

type Copy = { vm: Vm; isFlat: Promise<boolean> };

export class Flattening {
  readonly #options: FlatteningOptions;
  #copy: Copy | undefined;

  constructor(options: FlatteningOptions) {
    this.#options = options;
  }

  /** Begins to copy when the chain is long and there is room for a copy. */
  begin(vm: Vm): void {
    const { disk, machineId, enqueue, log } = this.#options;
    if (this.#copy || disk.layers.length <= MAX_LAYERS) return;
    if (!this.#hasRoom()) {
      log.warn({ machine_id: machineId }, 'a long chain of layers is not flattened: there is no room for a copy');
      return;
    }
    const isFlat = vm.flattenDisk(BYTES_PER_SEC).catch((err) => {
      log.warn({ machine_id: machineId, err }, 'a long chain of layers was not flattened');
      return false;
    });
    const copy = { vm, isFlat };
    this.#copy = copy;
    void isFlat.then(() => enqueue(() => this.#settle(copy)));
  }

  /** Resolves when nothing is copied, and what was copied whole is recorded; the machine's queue is held. */
  async stop(): Promise<void> {
    const copy = this.#copy;
    if (!copy) return;
    await copy.vm.stopFlatten();
    await this.#settle(copy);
  }

  /** The VM is gone, and its copy with it; the layers stay. */
  forget(): void {
    this.#copy = undefined;
  }

  async #settle(copy: Copy): Promise<void> {
    if (this.#copy !== copy) return;
    const isFlat = await copy.isFlat;
    if (this.#copy !== copy) return;
    this.#copy = undefined;
    if (!isFlat) return;
    this.#options.disk.noteFlat();
    this.#options.log.info({ machine_id: this.#options.machineId }, 'a long chain of layers was flattened');
    this.#options.onFlat();
  }

  #hasRoom(): boolean {
    const { disk, layers } = this.#options;
    const { bavail, bsize } = statfsSync(disk.folder);
    const needed = disk.layers.filter((id) => layers.has(id)).reduce((sum, id) => sum + layers.storedBytes(id), 0);
    return bavail * bsize > needed + SPARE_BYTES;
  }
}
