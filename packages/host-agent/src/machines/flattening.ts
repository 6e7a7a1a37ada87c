// Keeps the chain of layers below a running machine's disk short: reads get slower with its length. A long one is copied
// into the disk in the background and then forgotten. Whatever else is asked of the disk comes first: a copy that is cut
// short has done no harm, and begins again where it was.
import { statfsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { LayerStore } from '../storage/layers.ts';
import type { RootDisk } from './root-disk.ts';

/** Reads of 4k through 8 layers take as long as through one; through 20 they take a third longer. */
export const MAX_LAYERS = 8;
/** A quarter of what a slow disk does, so that machines do not feel it. */
const BYTES_PER_SEC = 64 * 1024 ** 2;
/** Left to the machines when a chain is copied. */
const SPARE_BYTES = 1024 ** 3;
/** QEMU ends a copy within milliseconds; whoever waits for one that does not is told so. */
const STOP_MS = 10_000;

export type FlatteningOptions = {
  machineId: string;
  disk: RootDisk;
  layers: LayerStore;
  /** Runs work in the machine's queue. */
  enqueue: (work: () => Promise<void>) => Promise<void>;
  /** Layers may be nobody's any more. */
  onFlat: () => void;
  /** How long a copy may take to end when it is told to. */
  stopMs?: number;
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
    const isFlat = vm.flattenDisk(disk.path, BYTES_PER_SEC).catch((err) => {
      log.warn({ machine_id: machineId, err }, 'a long chain of layers was not flattened');
      return false;
    });
    const copy = { vm, isFlat };
    this.#copy = copy;
    void isFlat.then((isWhole) => enqueue(async () => this.#settle(copy, isWhole)));
  }

  /**
   * Resolves when nothing is copied, and what was copied whole is recorded; the machine's queue is held. Throws
   * `host_unavailable` when the copy does not end in `stopMs`: it goes on then, and nothing else may be done to the disk.
   */
  async stop(): Promise<void> {
    const copy = this.#copy;
    if (!copy) return;
    const { log, machineId, stopMs = STOP_MS } = this.#options;
    copy.vm
      .stopFlatten()
      .catch((err) => log.warn({ machine_id: machineId, err }, 'the copy of a chain of layers was not told to stop'));
    const timer = new AbortController();
    const isWhole = await Promise.race([copy.isFlat, delay(stopMs, undefined, { signal: timer.signal })]);
    timer.abort();
    if (isWhole === undefined)
      throw new ServiceError('host_unavailable', 'the layers of the machine are being copied, and that does not end', {
        retryAfterSec: 30,
      });
    this.#settle(copy, isWhole);
  }

  /** The VM is gone, and its copy with it; the layers stay. */
  forget(): void {
    this.#copy = undefined;
  }

  /** A disk that is flat and cannot be recorded as such, as on a full host, is one on its layers all the same. */
  #settle(copy: Copy, isWhole: boolean): void {
    if (this.#copy !== copy) return;
    this.#copy = undefined;
    if (!isWhole) return;
    const { disk, log, machineId, onFlat } = this.#options;
    try {
      disk.noteFlat();
    } catch (err) {
      log.warn({ machine_id: machineId, err }, 'that a long chain of layers was flattened is not recorded');
      return;
    }
    log.info({ machine_id: machineId }, 'a long chain of layers was flattened');
    onFlat();
  }

  #hasRoom(): boolean {
    const { disk, layers } = this.#options;
    const { bavail, bsize } = statfsSync(disk.folder);
    const needed = disk.layers.filter((id) => layers.has(id)).reduce((sum, id) => sum + layers.storedBytes(id), 0);
    return bavail * bsize > needed + SPARE_BYTES;
  }
}
