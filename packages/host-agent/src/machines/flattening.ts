// Shortens the chain of layers below the disk of a running machine, because a long chain makes reads slow. QEMU copies
// the layers into the disk in the background ("flattening"); then the machine no longer needs them. Any other operation
// on the disk stops the copy first. That is harmless: the disk is unchanged for the guest, and a later copy continues.
import { statfsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { LayerStore } from '../storage/layers.ts';
import type { RootDisk } from './root-disk.ts';

/**
 * A chain with more layers is flattened. A read of 4 KiB takes as long through 8 layers as through one, and a third
 * longer through 20 layers.
 */
export const MAX_LAYERS = 8;
/** Rate limit of the copy: a quarter of the throughput of a slow disk, so that it does not slow down machines. */
const BYTES_PER_SEC = 64 * 1024 ** 2;
/** Free disk space that must remain for the machines after a copy. */
const SPARE_BYTES = 1024 ** 3;
/** How long to wait for QEMU to stop a copy, which normally takes milliseconds. */
const STOP_MS = 10_000;

export type FlatteningOptions = {
  machineId: string;
  disk: RootDisk;
  layers: LayerStore;
  /** Runs work in the machine's queue. */
  enqueue: (work: () => Promise<void>) => Promise<void>;
  /** Called after a copy, because some layers may now be unused. */
  onFlat: () => void;
  /** How long to wait for QEMU to stop a copy, in ms. */
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

  /** Starts a copy if the chain is too long, no copy runs, and the disk has room for it. */
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
   * Stops a running copy and waits for its end. If the copy was complete by then, records that. Must be called from the
   * machine's queue. Throws `host_unavailable` when the copy does not stop within `stopMs`. It then still runs, and the
   * disk must not be changed.
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

  /** Call this when the VM has ended. A running copy has ended with the VM, so the machine still needs its layers. */
  forget(): void {
    this.#copy = undefined;
  }

  /**
   * Records the result of a copy. If the record cannot be written, such as on a full disk, the machine keeps its
   * layers.
   */
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
