// The root disk of a machine as files: `disk.qcow2` in its folder is what its VM writes, on the layers that its record
// names. Both ways in which it changes its place begin with a note in the record, so that an agent that dies between any
// two steps leaves what the next one can finish:
//
//   freeze:   next.qcow2 made ──▶ `freezing` noted ──▶ (QEMU writes to next) ──▶ disk becomes the layer
//             ──▶ next becomes the disk ──▶ the layer is in the record, the note is gone
//   replace:  new layers noted, with `isReplaced` ──▶ disk removed ──▶ the note is gone
//
// Finishing a freeze is right whether or not QEMU had switched, as soon as no QEMU runs: one that had not left `next` empty.
import { existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { LayerStore } from '../storage/layers.ts';
import { backingPathOf, makeOverlay, refuseFullDisk } from '../storage/overlay.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { Origin } from './origin.ts';
import type { MachineRecord } from './record.ts';

/** A machine's root disk, in its folder. */
export const DISK = 'disk.qcow2';
/** The empty overlay that a machine is about to write to. */
const NEXT = 'next.qcow2';
/** What an agent that died was making: only a machine that is being started or frozen has them. */
const LEFTOVERS = [`${DISK}.partial`, `${DISK}.clone`, `${DISK}.clone.partial`, `${NEXT}.partial`];

export type RootDiskOptions = {
  /** The machine's folder. */
  dir: string;
  layers: LayerStore;
  volumes: VolumeStore;
  record: () => MachineRecord;
  /** Changes the record, durably. Throws `fleet_capacity` on a full disk; it is as it was then. */
  save: (changes: Partial<MachineRecord>) => void;
  /** The same, and a power cut in the next seconds may undo it. */
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

  /** Their files; absolute paths. */
  get layerPaths(): string[] {
    return this.#options.layers.pathsOf(this.#record.layers);
  }

  get isThere(): boolean {
    return existsSync(this.path);
  }

  /** The layer that the disk is being made, when that was begun and not ended. */
  get freezing(): string | null {
    return this.#record.freezing;
  }

  /** Why the machine cannot start from what is there, or undefined. */
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
   * Notes what the disk of a new machine begins as, and takes the root volume that it is made from: last, so that whatever fails
   * before leaves the volume. A disk that is there lost its record to a crash of the host; what it stands on is only known
   * when that is its image. Throws `fleet_capacity` on a full disk, `host_unavailable` when it is not known.
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

  /** Ends what an agent that died had begun. Run while no QEMU has the disk. */
  settle(): void {
    const { freezing, isReplaced } = this.#record;
    if (isReplaced) this.#removeReplaced();
    if (freezing !== null) this.finishFreeze();
    this.#takeVolume();
    for (const name of LEFTOVERS) rmSync(join(this.#options.dir, name), { force: true });
    rmSync(this.nextPath, { force: true });
  }

  /** Makes the empty overlay at `nextPath` and notes which layer the disk will be. Throws `fleet_capacity` on a full disk. */
  beginFreeze(layerId: string): void {
    const { image, layers, spec, freezing } = this.#record;
    if (freezing !== null) throw new Error('the disk is being frozen already');
    refuseFullDisk(this.#options.dir);
    // It will lie on the disk in its place as a layer.
    const layerPaths = this.#options.layers.pathsOf([...layers, layerId]);
    makeOverlay(this.nextPath, { imagePath: image.rootfsPath, layerPaths }, spec.rootfs_size_gb);
    try {
      this.#options.save({ freezing: layerId });
    } catch (error) {
      rmSync(this.nextPath, { force: true });
      throw error;
    }
  }

  /** The disk is written by nobody: it becomes the layer, and what was `next` the disk. Every step may have been done. */
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

  /** Nobody writes to `next`: the disk stays what it is. */
  abandonFreeze(): void {
    rmSync(this.nextPath, { force: true });
    this.#forgetFreeze();
  }

  /** The machine goes on from other layers, with an empty disk; nothing runs from the old one. Throws `fleet_capacity`. */
  replace(changes: Pick<MachineRecord, 'image' | 'layers'> & Partial<MachineRecord>): void {
    this.#options.save({ ...changes, hasDisk: false, freezing: null, isReplaced: true, resumes: null });
    this.settle();
  }

  /** Nothing lies between the disk and its image any more. */
  noteFlat(): void {
    this.#options.save({ layers: [] });
  }

  /** Without it the machine has lost something: it ran from it, or was made from it. */
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

  /** What was noted cannot be finished, as when somebody removed `next`; the disk itself is whole. */
  #forgetFreeze(): void {
    this.#options.save({ freezing: null });
  }
}

/** Throws `host_unavailable` with what is missing. */
export function refuseDamaged(disk: RootDisk): void {
  const damage = disk.damage();
  if (damage !== undefined) throw new ServiceError('host_unavailable', `the machine cannot start: ${damage}`);
}
