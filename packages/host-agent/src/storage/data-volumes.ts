// The data volumes of this host. `volumes/<id>/` holds a record and a sparse raw file, which is plugged into at most
// one VM. A volume exists as long as that file does: the record is made before the file and removed after it.
//
// While no machine has the volume, its file belongs to the agent's user. The file is formatted when a machine takes the
// volume for the first time. If the agent crashes before it has recorded this, the file is formatted again. That loses
// no data, because no machine has used the volume yet.
import { EventEmitter } from 'node:events';
import { constants, existsSync, readdirSync, statSync } from 'node:fs';
import { mkdir, open, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostVolume } from '@sandbar/contract/host-api.ts';
import { takeFileBack } from '../jail/run-links.ts';
import { CommandError, runCommand } from '../run-command.ts';
import { syncPath } from './durable.ts';
import { diskFull, isDiskFull } from './overlay.ts';
import { QueuePerId } from './queue-per-id.ts';
import { readRecord, writeRecord } from './record-file.ts';

const RECORD = 'volume.json';
/** A folder of `volumes/` with this file is a data volume. */
export const DATA_DISK = 'data.raw';
/** A folder with this file is a kept root disk (volume-store.ts). */
export const ROOT_DISK = 'disk.qcow2';
const GIB = 1024 ** 3;
/** How many removed volumes are remembered, so that a delayed call cannot create one of them again. */
const REMEMBERED_REMOVED = 10_000;

type DataVolumeRecord = {
  kind: 'data';
  size_gb: number;
  /** Whether the volume has a file system. */
  formatted: boolean;
  /** Grows with every move to another host. Absent in records of volumes that never moved: 1. */
  generation?: number;
};

export type VolumeLog = { error(details: object, message: string): void };

export class DataVolumes {
  /** `taken`: a machine takes the volume of this id, and may write to it from now on. */
  readonly events = new EventEmitter<{ taken: [string] }>();
  readonly #dir: string;
  readonly #log: VolumeLog;
  /** The machine that uses each volume, by volume id. */
  readonly #users = new Map<string, string>();
  readonly #queue = new QueuePerId();
  /**
   * Ids of removed volumes, oldest first. A delayed `ensure` call must not create one of them again. They are kept in
   * memory only: a restart of the agent breaks the connections of all delayed calls, so none can arrive after it.
   */
  readonly #removed = new Set<string>();

  /** `volumesDir` must exist. */
  constructor(volumesDir: string, log: VolumeLog) {
    this.#dir = volumesDir;
    this.#log = log;
  }

  has(id: string): boolean {
    return existsSync(this.diskPath(id));
  }

  list(): HostVolume[] {
    return readdirSync(this.#dir).flatMap((id) => {
      const record = this.has(id) ? this.#tryRead(id) : undefined;
      return record ? [{ volume_id: id, size_gb: record.size_gb, kind: 'data' as const }] : [];
    });
  }

  diskPath(id: string): string {
    return join(this.#dir, id, DATA_DISK);
  }

  /** Returns a volume's record. Undefined when there is no such volume or its record cannot be read. */
  find(id: string): DataVolumeRecord | undefined {
    return this.has(id) ? this.#tryRead(id) : undefined;
  }

  /**
   * Makes the volume, safe from a power cut. Does nothing when it exists. Throws `conflict` when it exists in another
   * size or as a kept root disk, or when it was removed before, because the call was then delayed. Throws
   * `fleet_capacity` on a full disk. Nothing is left when it throws.
   */
  ensure(id: string, sizeGb: number): Promise<void> {
    return this.#queue.run(id, async () => {
      if (this.#removed.has(id)) throw new ServiceError('conflict', `volume ${id} was deleted`);
      if (this.has(id)) return this.#confirm(id, sizeGb);
      const dir = join(this.#dir, id);
      if (existsSync(join(dir, ROOT_DISK))) throw new ServiceError('conflict', `volume ${id} is a kept root disk`);
      try {
        await rm(dir, { recursive: true, force: true });
        await this.#make(dir, sizeGb);
      } catch (error) {
        await rm(dir, { recursive: true, force: true });
        throw makeFailure(error, sizeGb);
      }
    });
  }

  /** Removes a volume; does nothing when there is none. Throws `conflict` while a machine has it. */
  remove(id: string): Promise<void> {
    return this.#queue.run(id, async () => {
      const user = this.#users.get(id);
      if (user !== undefined) throw new ServiceError('conflict', `volume ${id} is attached to machine ${user}`);
      this.#rememberRemoved(id);
      if (!this.has(id)) return;
      await rm(this.diskPath(id));
      await rm(join(this.#dir, id), { recursive: true, force: true });
    });
  }

  /** Returns the machine that uses the volume. */
  userOf(id: string): string | undefined {
    return this.#users.get(id);
  }

  /**
   * Reserves the volume for a machine until {@link giveBack}, and formats it if it never was. Returns the path of its
   * file. Throws `conflict` when another machine uses the volume or it is not on this host, `fleet_capacity` on a full
   * disk, and `host_unavailable` when formatting fails.
   */
  async take(id: string, machineId: string): Promise<string> {
    this.takeAgain(id, machineId);
    try {
      await this.#queue.run(id, () => this.#format(id));
      return this.diskPath(id);
    } catch (error) {
      this.#users.delete(id);
      throw takeFailure(id, error);
    }
  }

  /** Notes that the VM of a machine has the volume already. Throws `conflict` when another machine has it. */
  takeAgain(id: string, machineId: string): void {
    const user = this.#users.get(id) ?? machineId;
    if (user !== machineId) throw new ServiceError('conflict', `volume ${id} is in use by machine ${user}`);
    this.#users.set(id, machineId);
    this.events.emit('taken', id);
  }

  /**
   * Releases the volume of a machine whose VM no longer uses it, and makes the agent the owner of its file again. Does
   * nothing when the machine does not have the volume.
   */
  giveBack(id: string, machineId: string): void {
    if (this.#users.get(id) !== machineId) return;
    takeFileBack(this.diskPath(id));
    this.#users.delete(id);
  }

  /** Returns the folders of volumes whose record cannot be read. */
  damaged(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => this.has(id) && !this.#tryRead(id))
      .map((id) => join(this.#dir, id));
  }

  /** Files that still belong to the user of a VM though no machine has the volume. A crash can leave such files. */
  strays(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => !this.#users.has(id))
      .map((id) => this.diskPath(id))
      .filter((path) => isForeign(path));
  }

  /** Gives the stray files back to the agent. Run at the start, after the running machines have taken their volumes. */
  takeStraysBack(): void {
    for (const path of this.strays()) takeFileBack(path);
  }

  #rememberRemoved(id: string): void {
    this.#removed.add(id);
    const [oldest] = this.#removed;
    if (this.#removed.size > REMEMBERED_REMOVED && oldest !== undefined) this.#removed.delete(oldest);
  }

  async #make(dir: string, sizeGb: number): Promise<void> {
    await mkdir(dir, { mode: 0o700 });
    writeRecord(join(dir, RECORD), { kind: 'data', size_gb: sizeGb, formatted: false } satisfies DataVolumeRecord);
    const partial = join(dir, `${DATA_DISK}.partial`);
    const file = await open(partial, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
    try {
      await file.truncate(sizeGb * GIB);
      await file.sync();
    } finally {
      await file.close();
    }
    for (const path of [join(dir, RECORD), dir, this.#dir]) await syncPath(path);
    await rename(partial, join(dir, DATA_DISK));
    await syncPath(dir);
  }

  #confirm(id: string, sizeGb: number): void {
    const { size_gb } = this.#read(id);
    if (size_gb !== sizeGb) throw new ServiceError('conflict', `volume ${id} has ${size_gb} GB, not ${sizeGb}`);
  }

  async #format(id: string): Promise<void> {
    if (!this.has(id)) throw new ServiceError('conflict', `volume ${id} is not on this host`);
    const record = this.#read(id);
    if (record.formatted) return;
    const disk = this.diskPath(id);
    // Drops what an interrupted formatting wrote: on some file systems the discard of mkfs would not remove it.
    await truncate(disk, 0);
    await truncate(disk, record.size_gb * GIB);
    await makeFileSystem(disk, id);
    await syncPath(disk);
    const recordPath = join(this.#dir, id, RECORD);
    writeRecord(recordPath, { ...record, formatted: true } satisfies DataVolumeRecord);
    // Otherwise a power cut could bring the old record back, and the next attach would format over the data of a
    // machine.
    for (const path of [recordPath, join(this.#dir, id)]) await syncPath(path);
  }

  /** Throws `conflict` when the record cannot be read. */
  #read(id: string): DataVolumeRecord {
    const record = this.#tryRead(id);
    if (!record) throw new ServiceError('conflict', `the record of volume ${id} cannot be read on its host`);
    return record;
  }

  /** Undefined when the record cannot be read, so that one damaged record does not hide the other volumes. */
  #tryRead(id: string): DataVolumeRecord | undefined {
    try {
      return readRecord<DataVolumeRecord>(join(this.#dir, id, RECORD));
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the record of a volume cannot be read');
      return undefined;
    }
  }
}

/**
 * Makes an ext4 file system on a sparse file: 10 ms for 5 GiB, 45 ms for 1 TiB. mkfs begins with a discard and learns
 * from it that the file reads as zeros. So it marks the inode tables as initialised and the guest's kernel does not
 * write them in the background. The journal is not written either. No blocks are reserved for root, because most
 * programs of a machine are root.
 */
async function makeFileSystem(path: string, uuid: string): Promise<void> {
  await runCommand('mkfs.ext4', ['-q', '-F', '-b', '4096', '-m', '0', '-U', uuid, '-E', 'lazy_journal_init=1', path]);
}

function takeFailure(id: string, cause: unknown): ServiceError {
  if (cause instanceof ServiceError) return cause;
  if (isDiskFull(cause) || isOutOfSpace(cause)) return diskFull(cause);
  const why = cause instanceof Error ? cause.message : String(cause);
  return new ServiceError('host_unavailable', `volume ${id} cannot be made ready: ${why}`, {
    retryAfterSec: 30,
    cause,
  });
}

function isOutOfSpace(error: unknown): boolean {
  return error instanceof CommandError && /No space left|Disk quota exceeded/.test(error.message);
}

function makeFailure(error: unknown, sizeGb: number): unknown {
  if (isDiskFull(error)) return diskFull(error);
  if ((error as NodeJS.ErrnoException).code !== 'EFBIG') return error;
  return new ServiceError('fleet_capacity', `the host's file system has no files of ${sizeGb} GB`, { cause: error });
}

function isForeign(path: string): boolean {
  const facts = statSync(path, { throwIfNoEntry: false });
  return facts !== undefined && facts.uid !== process.getuid?.();
}
