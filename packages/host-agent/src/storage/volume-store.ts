// Stores kept root disks, next to the data volumes (data-volumes.ts). `volumes/<id>/` contains a disk and a record that
// describes it. A volume exists when its disk file exists. The record is made durable before the disk is moved in, and
// is removed after the disk. So after a crash at any point the disk is in exactly one place, and never without its
// record.
//
//   record durable ──▶ disk renamed in ──▶ (the machine's folder is removed)
//
// If the agent crashes before the rename, there is no volume yet and the disk still belongs to the machine.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostVolume } from '@sandbar/contract/host-api.ts';
import type { MachineImage } from '../machines/record.ts';
import { DATA_DISK, ROOT_DISK } from './data-volumes.ts';
import { syncPath } from './durable.ts';
import { readRecord, writeRecord } from './record-file.ts';

const RECORD = 'volume.json';

/** What a later boot from the disk needs. */
export type VolumeRecord = {
  kind: 'root';
  size_gb: number;
  /** The machine whose root disk this was. */
  machine_id: string;
  /** Null when the machine's record was lost. Then only the disk's header names the image below. */
  stack: string | null;
  /** The image build below the disk. A build that a record names must be kept, as for machines. */
  image: MachineImage | null;
  /** Ids of the layers between image and disk, bottom first; null when the machine's record was lost. */
  layers: readonly string[] | null;
  /** Grows with every move to another host. Absent in records of volumes that never moved: 1. */
  generation?: number;
};

type VolumeLog = { error(details: object, message: string): void };

export class VolumeStore {
  readonly #dir: string;
  readonly #log: VolumeLog;

  constructor(volumesDir: string, log: VolumeLog) {
    this.#dir = volumesDir;
    this.#log = log;
    mkdirSync(volumesDir, { recursive: true, mode: 0o700 });
    for (const id of readdirSync(volumesDir)) {
      // This folder is left from an operation (keep, create or delete) that a crash interrupted. The control plane
      // repeats the operation, or only this clean-up was missing.
      if (!this.has(id) && !existsSync(join(volumesDir, id, DATA_DISK)))
        rmSync(join(volumesDir, id), { recursive: true, force: true });
    }
  }

  has(id: string): boolean {
    return existsSync(this.diskPath(id));
  }

  diskPath(id: string): string {
    return join(this.#dir, id, ROOT_DISK);
  }

  list(): HostVolume[] {
    return readdirSync(this.#dir).flatMap((id) => {
      const record = this.has(id) ? this.#read(id) : undefined;
      return record ? [{ volume_id: id, size_gb: record.size_gb, kind: record.kind }] : [];
    });
  }

  /**
   * Moves a machine's disk into the store, durably. Does nothing when it is there already. Throws `conflict` when the
   * volume is another machine's disk, and `fleet_capacity` when the record does not fit on the disk; then the machine's
   * disk stays in place.
   */
  async keep(id: string, diskPath: string, record: VolumeRecord): Promise<void> {
    if (this.has(id)) return this.#confirm(id, diskPath, record);
    const dir = join(this.#dir, id);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    writeRecord(join(dir, RECORD), record);
    for (const path of [join(dir, RECORD), dir, this.#dir, diskPath]) await syncPath(path);
    await rename(diskPath, join(dir, ROOT_DISK));
    await this.#syncMove(dir, diskPath);
  }

  /** Returns a volume's record. Undefined when there is no such volume or its record cannot be read. */
  find(id: string): VolumeRecord | undefined {
    const record = this.has(id) ? this.#read(id) : undefined;
    // Records of earlier versions have no `layers` field.
    return record && { ...record, layers: record.layers === undefined ? [] : record.layers };
  }

  /**
   * Returns the ids of all layers that volumes use. Throws when a volume's record cannot be read or does not know its
   * layers.
   */
  layersInUse(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => this.has(id))
      .flatMap((id) => {
        const layers = this.find(id)?.layers;
        if (!layers) throw new Error(`the layers of volume ${id} are not known`);
        return layers;
      });
  }

  /** Returns the images below all volumes. Throws when a volume's record cannot be read or does not know its image. */
  imagesInUse(): MachineImage[] {
    return readdirSync(this.#dir)
      .filter((id) => this.has(id))
      .map((id) => {
        const image = this.find(id)?.image;
        if (!image) throw new Error(`the image of volume ${id} is not known`);
        return image;
      });
  }

  /**
   * Moves a volume's disk to a machine, whose record must already name the layers below it. Does nothing when there is
   * no such volume.
   */
  take(id: string, diskPath: string): void {
    if (!this.has(id)) return;
    const dir = join(this.#dir, id);
    renameSync(join(dir, ROOT_DISK), diskPath);
    try {
      rmSync(dir, { recursive: true, force: true });
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the folder of a volume that a machine claimed was not removed');
    }
  }

  /** Removes a volume. Does nothing when there is none. */
  async remove(id: string): Promise<void> {
    const dir = join(this.#dir, id);
    await rm(join(dir, ROOT_DISK), { force: true });
    await rm(dir, { recursive: true, force: true });
  }

  /**
   * Checks that an existing volume is this machine's disk, and makes its move durable, because the agent that moved the
   * disk may have died before that.
   */
  async #confirm(id: string, diskPath: string, { machine_id }: VolumeRecord): Promise<void> {
    const known = this.#read(id);
    if (known && known.machine_id !== machine_id)
      throw new ServiceError('conflict', `volume ${id} is the disk of machine ${known.machine_id}`);
    await this.#syncMove(join(this.#dir, id), diskPath);
  }

  async #syncMove(dir: string, diskPath: string): Promise<void> {
    await syncPath(dir);
    await syncPath(dirname(diskPath));
  }

  /** Returns undefined when the record cannot be read, so that one damaged record does not hide the other volumes. */
  #read(id: string): VolumeRecord | undefined {
    try {
      return readRecord<VolumeRecord>(join(this.#dir, id, RECORD));
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the record of a volume cannot be read');
      return undefined;
    }
  }
}
