// Owns the root disk of one machine: what it is based on, its snapshots, its restore, and its conversion to a volume
// when the machine is deleted. root-disk.ts handles the files themselves.
import { join } from 'node:path';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { settleRunningDisk } from '../snapshots/freeze-disk.ts';
import { takeSnapshot } from '../snapshots/take-snapshot.ts';
import { Flattening } from './flattening.ts';
import { keepDisk } from './keep-disk.ts';
import type { MachineHost } from './machine-host.ts';
import { type Origin, usableSnapshot } from './origin.ts';
import type { MachineRecord } from './record.ts';
import type { RecordBook } from './record-book.ts';
import { RootDisk, refuseDamaged } from './root-disk.ts';

type Status = Pick<MachineRecord, 'status' | 'reason'>;

export class MachineDisk {
  readonly #machineId: string;
  readonly #host: MachineHost;
  readonly #book: RecordBook;
  readonly #root: RootDisk;
  readonly #flattening: Flattening;

  /** `enqueue` runs work in the machine's queue. */
  constructor(
    machineId: string,
    host: MachineHost,
    book: RecordBook,
    enqueue: (work: () => Promise<void>) => Promise<void>,
  ) {
    this.#machineId = machineId;
    this.#host = host;
    this.#book = book;
    const { layers, volumes, log } = host;
    this.#root = new RootDisk({
      dir: join(host.machinesDir, machineId),
      layers,
      volumes,
      record: () => book.record,
      save: (changes) => book.saveDurably(changes),
      saveSoon: (changes) => book.save(changes),
    });
    this.#flattening = new Flattening({
      machineId,
      disk: this.#root,
      layers,
      enqueue,
      onFlat: () => host.onLayersLeft(),
      log,
    });
  }

  get path(): string {
    return this.#root.path;
  }

  get layerPaths(): string[] {
    return this.#root.layerPaths;
  }

  /** Records what a new machine is based on, see {@link RootDisk.begin}. */
  begin(origin: Origin): void {
    this.#root.begin(origin);
    // The record must name the disk's layers even after a power failure, so it is flushed to disk while the machine
    // starts.
    if (this.#book.record.layers.length > 0) this.#book.beginSync();
  }

  /** Makes the disk ready for a start. Throws `host_unavailable` when a part of it is missing. */
  prepareStart(): void {
    this.#root.settle();
    refuseDamaged(this.#root);
  }

  /** Call it when a VM runs from the disk. */
  beginUse(vm: Vm): void {
    this.#flattening.begin(vm);
  }

  /** Takes over the disk of a VM that an earlier agent started. */
  async takeUp(vm: Vm): Promise<void> {
    await settleRunningDisk(this.#root, vm).catch((err) => this.#warnUnsettled(err));
  }

  /** Call it before the VM ends, because a background copy of layers ends with the VM. */
  forgetCopy(): void {
    this.#flattening.forget();
  }

  /** Completes an interrupted freeze or restore of the disk. No VM may use the disk. */
  settle(): void {
    try {
      this.#root.settle();
    } catch (err) {
      this.#warnUnsettled(err);
    }
  }

  /** Returns the given status, or `failed` when a part of the machine's disk is missing. */
  statusWithoutVm({ status, reason }: Status): Status {
    const damage = this.#root.damage();
    return damage === undefined ? { status, reason } : { status: 'failed', reason: damage };
  }

  /** Takes a snapshot, see {@link takeSnapshot}. Without a running VM, throws `host_unavailable` for a damaged disk. */
  async takeSnapshot(
    snapshotId: string,
    vm: Vm | undefined,
    guest: Guest | undefined,
    memory: boolean,
  ): Promise<HostSnapshot> {
    if (!vm) refuseDamaged(this.#root);
    await this.#flattening.stop();
    const subject = {
      machineId: this.#machineId,
      record: () => this.#book.record,
      disk: this.#root,
      running: vm && guest && { vm, guest },
    };
    return takeSnapshot(this.#host, snapshotId, subject, memory).finally(() => vm && this.#flattening.begin(vm));
  }

  /** Throws `conflict` when the machine's disk cannot be restored to that snapshot. */
  checkRestore(snapshotId: string): void {
    usableSnapshot(this.#host.snapshots, snapshotId, this.#book.record.spec);
  }

  /**
   * Restores the disk to a snapshot and records that this was done in `generation`. No VM may use the disk. Throws
   * `conflict` when the snapshot is gone, and `fleet_capacity` on a full disk.
   */
  restore(snapshotId: string, generation: number): void {
    const { image, layers } = usableSnapshot(this.#host.snapshots, snapshotId, this.#book.record.spec);
    this.#root.replace({ image, layers, restoredGeneration: generation, status: 'stopped', reason: null });
  }

  /**
   * Makes a volume of the disk, see {@link keepDisk}. It records the generation first, so that a restarted agent also
   * refuses a delayed ensure request, which would make a second disk.
   */
  async keepAs(volumeId: string): Promise<void> {
    const { generation } = this.#book.record;
    this.#book.save({ generation, ...this.statusWithoutVm({ status: 'stopped', reason: null }) });
    await keepDisk(this.#host.volumes, volumeId, { id: this.#machineId, disk: this.#root }, () => this.#book.record);
  }

  #warnUnsettled(err: unknown): void {
    this.#host.log.warn({ machine_id: this.#machineId, err }, 'a freeze of a disk is not settled yet');
  }
}
