// Manages the files of a machine's root disk. The VM writes to `disk.qcow2` in the machine's folder. That file is based
// on read-only layers, which the machine's record names. Two operations change these files. Each first writes its
// intent to the record, so that after a crash of the agent at any step the next agent can finish it:
//
//   freeze (makes the disk a layer):  create next.qcow2 ──▶ record `freezing` ──▶ QEMU switches to next.qcow2
//             ──▶ move disk.qcow2 to the layers ──▶ rename next.qcow2 to disk.qcow2 ──▶ record the layer, clear `freezing`
//   replace (restores a snapshot):  record the new layers and `isReplaced` ──▶ remove disk.qcow2 ──▶ clear `isReplaced`
//
// When no QEMU runs, a freeze can always be finished. If QEMU had not switched yet, next.qcow2 is empty, and the disk
// with it on top has the same content.
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { LayerStore } from '../storage/layers.ts';
import { backingPathOf, makeOverlay, refuseFullDisk } from '../storage/overlay.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { Origin } from './origin.ts';
import type { MachineRecord } from './record.ts';

/** Name of a machine's root disk in its folder. */
export const DISK = 'disk.qcow2';
/** Name of the empty overlay that becomes the next root disk during a freeze. */
const NEXT = 'next.qcow2';
/** Temporary files of starts and freezes. An agent that crashed may have left them. */
const LEFTOVERS = [`${DISK}.partial`, `${DISK}.clone`, `${DISK}.clone.partial`, NEXT, `${NEXT}.partial`];

export type RootDiskOptions = {
  /** The machine's folder. */
  dir: string;
  layers: LayerStore;
  volumes: VolumeStore;
  record: () => MachineRecord;
  /**
   * Changes the record and syncs it to the disk. Throws `fleet_capacity` on a full disk; the record is unchanged then.
   */
  save: (changes: Partial<MachineRecord>) => void;
  /** Like `save`, but without a sync: a power failure in the next seconds may undo the change. */
  saveSoon: (changes: Partial<MachineRecord>) => void;
};

export class RootDisk {
  readonly path: string;
  readonly nextPath: string;
  readonly #options: RootDiskOptions;

  constructor(options: RootDiskOptions) {
    this.#options = options;
    this.path = join(options.dir, DISK);
    this.nextPath = join(options.dir, NEXT);
  }

  get folder(): string {
    return this.#options.dir;
  }

  /** Ids of the layers below the disk, bottom to top. */
  get layers(): readonly string[] {
    return this.#record.layers;
  }

  /** Absolute paths of the layers' files, bottom to top. */
  get layerPaths(): string[] {
    return this.#options.layers.pathsOf(this.#record.layers);
  }

  get isThere(): boolean {
    return existsSync(this.path);
  }

  /** The id of the layer that the disk becomes, while a freeze is unfinished; else null. */
  get freezing(): string | null {
    return this.#record.freezing;
  }

  /** Returns which file is missing, so that the machine cannot start, or undefined when no file is missing. */
  damage(): string | undefined {
    const { layers, freezing, isReplaced, image } = this.#record;
    const missing = this.#options.layers.missingOf(layers);
    if (missing !== undefined) return `its disk is incomplete: layer ${missing} is missing on the host`;
    if (!existsSync(image.rootfsPath)) return `its disk is incomplete: the image ${image.rootfsPath} is missing`;
    if (this.#mustBeThere && !isReplaced && freezing === null && !this.isThere)
      return 'its disk is missing on the host';
    return undefined;
  }

  /**
   * Records the image and the layers of a new machine. If the machine is made from a root volume, moves the volume's
   * file here as the last step, so that an earlier failure leaves the volume. If there is a disk already, a crash of
   * the host has destroyed the machine's record. That disk can be used only when it is based directly on the image of
   * `origin`. Throws `fleet_capacity` on a full disk, and `host_unavailable` when an existing disk cannot be used.
   */
  begin(origin: Origin): void {
    if (this.isThere && (origin.layers.length > 0 || backingPathOf(this.path) !== origin.image.rootfsPath))
      throw new ServiceError(
        'host_unavailable',
        'the record of the machine was lost, and with it what its disk stands on',
      );
    if (this.#record.spec.root_volume_id === undefined) {
      this.#options.saveSoon(origin);
      return;
    }
    this.#options.save(origin);
    this.#takeVolume();
  }

  /**
   * Completes a freeze or a replace that a crash of the agent interrupted. Call this only while no QEMU uses the disk.
   */
  settle(): void {
    const { freezing, isReplaced } = this.#record;
    if (isReplaced) this.#removeReplaced();
    if (freezing !== null) this.finishFreeze();
    this.#takeVolume();
    const { dir } = this.#options;
    // The folder is gone if the machine was destroyed meanwhile.
    const names = existsSync(dir) ? readdirSync(dir) : [];
    for (const name of names.filter((one) => LEFTOVERS.includes(one))) rmSync(join(dir, name));
  }

  /**
   * Begins a freeze: creates the empty overlay at `nextPath` and records the id of the layer that the disk will become.
   * Throws `fleet_capacity` on a full disk.
   */
  beginFreeze(layerId: string): void {
    const { image, layers, spec, freezing } = this.#record;
    if (freezing !== null) throw new Error('the disk is being frozen already');
    refuseFullDisk(this.#options.dir);
    // The overlay is based on the file that the current disk will be once it is a layer.
    const layerPaths = this.#options.layers.pathsOf([...layers, layerId]);
    makeOverlay(this.nextPath, { imagePath: image.rootfsPath, layerPaths }, spec.rootfs_size_gb);
    try {
      this.#options.save({ freezing: layerId });
    } catch (error) {
      rmSync(this.nextPath, { force: true });
      throw error;
    }
  }

  /**
   * Finishes a freeze, when nothing writes to the disk any more: moves the disk to the layers and makes the overlay at
   * `nextPath` the disk. Skips steps that were done before a crash.
   */
  finishFreeze(): void {
    const { freezing, layers } = this.#record;
    if (freezing === null) return;
    const store = this.#options.layers;
    if (!existsSync(this.nextPath) && !store.has(freezing)) {
      this.#forgetFreeze();
      return;
    }
    if (!store.has(freezing)) store.add(freezing, this.path);
    if (existsSync(this.nextPath)) renameSync(this.nextPath, this.path);
    this.#options.save({ layers: [...layers, freezing], freezing: null, hasDisk: true });
  }

  /** Undoes a freeze, when QEMU has not switched to the overlay: removes the overlay and keeps the disk. */
  abandonFreeze(): void {
    rmSync(this.nextPath, { force: true });
    this.#forgetFreeze();
  }

  /**
   * Bases the machine on the layers in `changes`, with an empty disk, and removes the old disk. No QEMU may use the old
   * disk. Throws `fleet_capacity` on a full disk.
   */
  replace(changes: Pick<MachineRecord, 'image' | 'layers'> & Partial<MachineRecord>): void {
    this.#options.save({ ...changes, hasDisk: false, freezing: null, isReplaced: true, resumes: null });
    this.settle();
  }

  /** Records that the disk needs no layers any more, because QEMU has copied them into it. */
  noteFlat(): void {
    this.#options.save({ layers: [] });
  }

  /** Whether a missing disk means lost data: the machine has run from it, or it was made from a root volume. */
  get #mustBeThere(): boolean {
    const { hasDisk, restoredGeneration, spec } = this.#record;
    return hasDisk || (spec.root_volume_id !== undefined && restoredGeneration === 0);
  }

  #takeVolume(): void {
    const { hasDisk, spec } = this.#record;
    if (spec.root_volume_id === undefined || hasDisk || !this.#mustBeThere || this.isThere) return;
    this.#options.volumes.take(spec.root_volume_id, this.path);
  }

  get #record(): MachineRecord {
    return this.#options.record();
  }

  #removeReplaced(): void {
    rmSync(this.path, { force: true });
    this.#options.save({ isReplaced: false });
  }

  /** Clears `freezing` for a freeze that was undone, or whose overlay is missing. The disk itself is complete then. */
  #forgetFreeze(): void {
    this.#options.save({ freezing: null });
  }
}

/** Throws `host_unavailable` with the missing file when the disk is incomplete. */
export function refuseDamaged(disk: RootDisk): void {
  const damage = disk.damage();
  if (damage !== undefined) throw new ServiceError('host_unavailable', `the machine cannot start: ${damage}`);
}
