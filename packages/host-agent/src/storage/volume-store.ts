// Kept root disks, beside the data volumes (data-volumes.ts): `volumes/<id>/` holds a disk and a record that says what it
// is. A volume exists from the moment its disk is there: the record is written and made durable before the disk is moved
// in, and outlives it in a delete, so that a crash at any point leaves the disk in exactly one place and never without
// its record.
//
//   record durable ──▶ disk renamed in ──▶ (the machine's folder goes)      a crash before the rename: not a volume yet,
//                                                                           the disk is still the machine's
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

/** What a later boot from the disk needs to know. */
export type VolumeRecord = {
  kind: 'root';
  size_gb: number;
  /** The machine whose root disk it was. */
  machine_id: string;
  /** Null when the machine's own record was lost; then only the disk's header names the image below it. */
  stack: string | null;
  /** The build that the disk is an overlay of. Builds that a record names must stay, like those of machines. */
  image: MachineImage | null;
  /** Ids of the layers between the image and the disk, bottom to top; null like the image. */
  layers: readonly string[] | null;
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
      // A keep, a create or a delete that a crash cut short; they are repeated, or were done but for this.
      if (!this.has(id) && !existsSync(join(volumesDir, id, DATA_DISK)))
        rmSync(join(volumesDir, id), { recursive: true, force: true });
    }
  }

  has(id: string): boolean {
    return existsSync(join(this.#dir, id, ROOT_DISK));
  }

  list(): HostVolume[] {
    return readdirSync(this.#dir).flatMap((id) => {
      const record = this.has(id) ? this.#read(id) : undefined;
      return record ? [{ volume_id: id, size_gb: record.size_gb, kind: record.kind }] : [];
    });
  }

  /**
   * Moves a machine's disk here, durably; a disk that is here already is left alone. Throws `conflict` when the volume is
   * another machine's disk, `fleet_capacity` when there is no room for the record; the disk stays where it was then.
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

  /** Undefined when it is not there, or nobody knows what it is. */
  find(id: string): VolumeRecord | undefined {
    const record = this.has(id) ? this.#read(id) : undefined;
    // One of an earlier version knows of no layers.
    return record && { ...record, layers: record.layers === undefined ? [] : record.layers };
  }

  /** What every volume stands on. Throws when the record of one cannot be read, or has lost it. */
  layersInUse(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => this.has(id))
      .flatMap((id) => {
        const layers = this.find(id)?.layers;
        if (!layers) throw new Error(`what volume ${id} stands on is not known`);
        return layers;
      });
  }

  /** The volume becomes the disk of a machine whose record holds on to what it stands on. Does nothing when it is gone. */
  take(id: string, diskPath: string): void {
    if (!this.has(id)) return;
    const dir = join(this.#dir, id);
    renameSync(join(dir, ROOT_DISK), diskPath);
    try {
      rmSync(dir, { recursive: true, force: true });
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the folder of a volume that a machine took was not removed');
    }
  }

  /** Removes a volume; one that is not there is removed already. */
  async remove(id: string): Promise<void> {
    const dir = join(this.#dir, id);
    await rm(join(dir, ROOT_DISK), { force: true });
    await rm(dir, { recursive: true, force: true });
  }

  /** The agent that moved the disk may have died before the move was durable. */
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

  /** Undefined when it cannot be read: one damaged record must not hide the other volumes. */
  #read(id: string): VolumeRecord | undefined {
    try {
      return readRecord<VolumeRecord>(join(this.#dir, id, RECORD));
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the record of a volume cannot be read');
      return undefined;
    }
  }
}
