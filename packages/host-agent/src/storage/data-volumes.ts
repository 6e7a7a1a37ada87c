// The data volumes of this host: `volumes/<id>/` holds a record and a sparse raw file, which becomes the disk of one VM at a
// time. A volume exists from the moment that file is there: the record is durable before it, and outlives it in a delete.
//
// The file is the agent's own unless a machine has the volume. It is formatted when a machine takes it for the first
// time; a crash before that is recorded formats it again, and nothing is lost, because no machine had it yet.
import { constants, existsSync, readdirSync, statSync } from 'node:fs';
import { mkdir, open, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostVolume } from '@sandbar/contract/host-api.ts';
import { takeFileBack } from '../jail/run-links.ts';
import { CommandError, runCommand } from '../run-command.ts';
import { syncPath } from './durable.ts';
import { diskFull, isDiskFull } from './overlay.ts';
import { readRecord, writeRecord } from './record-file.ts';

const RECORD = 'volume.json';
/** What makes a folder of `volumes/` a data volume. */
export const DATA_DISK = 'data.raw';
/** What makes it a kept root disk (volume-store.ts). */
export const ROOT_DISK = 'disk.qcow2';
const GIB = 1024 ** 3;
/** How many removed volumes are remembered, so that a late call cannot make one again. */
const REMEMBERED_REMOVED = 10_000;

type DataVolumeRecord = {
  kind: 'data';
  size_gb: number;
  /** Whether there is a file system on it. */
  formatted: boolean;
};

export type VolumeLog = { error(details: object, message: string): void };

export class DataVolumes {
  readonly #dir: string;
  readonly #log: VolumeLog;
  /** The machine that has a volume, by volume. */
  readonly #users = new Map<string, string>();
  /** Ends when all that was asked of a volume so far is done, by volume. */
  readonly #queues = new Map<string, Promise<unknown>>();
  /** Oldest first. An agent that restarts forgets them, but a call does not outlive the agent that it was sent to. */
  readonly #removed = new Set<string>();

  /** `volumesDir` exists. */
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

  /**
   * Makes the volume, durably; one that is there is left alone. Throws `conflict` when that has another size or is something
   * else, or when the volume was removed before: the call is late then. Throws `fleet_capacity` on a full disk. Nothing is
   * left when it throws.
   */
  ensure(id: string, sizeGb: number): Promise<void> {
    return this.#inOrder(id, async () => {
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

  /** Removes a volume; one that is not there is removed already. Throws `conflict` while a machine has it. */
  remove(id: string): Promise<void> {
    return this.#inOrder(id, async () => {
      const user = this.#users.get(id);
      if (user !== undefined) throw new ServiceError('conflict', `volume ${id} is attached to machine ${user}`);
      this.#rememberRemoved(id);
      if (!this.has(id)) return;
      await rm(this.diskPath(id));
      await rm(join(this.#dir, id), { recursive: true, force: true });
    });
  }

  /** The machine that has the volume. */
  userOf(id: string): string | undefined {
    return this.#users.get(id);
  }

  /**
   * Gives the volume to a machine, until {@link giveBack}; formatted, if it never was. Returns its file. Throws `conflict` when another
   * machine has it or it is not on this host, `fleet_capacity` on a full disk, `host_unavailable` when it cannot be formatted.
   */
  async take(id: string, machineId: string): Promise<string> {
    this.takeAgain(id, machineId);
    try {
      await this.#inOrder(id, () => this.#format(id));
      return this.diskPath(id);
    } catch (error) {
      this.#users.delete(id);
      throw takeFailure(id, error);
    }
  }

  /** The machine's VM has it already. Throws `conflict` when it is another machine's. */
  takeAgain(id: string, machineId: string): void {
    const user = this.#users.get(id) ?? machineId;
    if (user !== machineId) throw new ServiceError('conflict', `volume ${id} is in use by machine ${user}`);
    this.#users.set(id, machineId);
  }

  /** No VM has it any more: its file becomes the agent's own. Does nothing when the machine does not have it. */
  giveBack(id: string, machineId: string): void {
    if (this.#users.get(id) !== machineId) return;
    takeFileBack(this.diskPath(id));
    this.#users.delete(id);
  }

  /** Folders of volumes whose record cannot be read. */
  damaged(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => this.has(id) && !this.#tryRead(id))
      .map((id) => join(this.#dir, id));
  }

  /** Files that belong to a VM's uid, though no machine has the volume: what a crash left. */
  strays(): string[] {
    return readdirSync(this.#dir)
      .filter((id) => !this.#users.has(id))
      .map((id) => this.diskPath(id))
      .filter((path) => isForeign(path));
  }

  /** Makes the stray files the agent's own. Run at the start, once the machines that run have what they have. */
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
    // What a formatting that was cut short has written must not show through, where no discard removes it.
    await truncate(disk, 0);
    await truncate(disk, record.size_gb * GIB);
    await makeFileSystem(disk, id);
    await syncPath(disk);
    const recordPath = join(this.#dir, id, RECORD);
    writeRecord(recordPath, { ...record, formatted: true } satisfies DataVolumeRecord);
    // A machine's data must never meet a record that has forgotten this.
    for (const path of [recordPath, join(this.#dir, id)]) await syncPath(path);
  }

  /** Throws `conflict`: without it nobody knows what the file is. */
  #read(id: string): DataVolumeRecord {
    const record = this.#tryRead(id);
    if (!record) throw new ServiceError('conflict', `the record of volume ${id} cannot be read on its host`);
    return record;
  }

  /** Undefined when it cannot be read: one damaged record must not hide the other volumes. */
  #tryRead(id: string): DataVolumeRecord | undefined {
    try {
      return readRecord<DataVolumeRecord>(join(this.#dir, id, RECORD));
    } catch (err) {
      this.#log.error({ volume_id: id, err }, 'the record of a volume cannot be read');
      return undefined;
    }
  }

  #inOrder<T>(id: string, work: () => T | Promise<T>): Promise<T> {
    const result = (this.#queues.get(id) ?? Promise.resolve()).then(work);
    const settled = result.then(
      () => {},
      () => {},
    );
    this.#queues.set(id, settled);
    void settled.then(() => this.#queues.get(id) === settled && this.#queues.delete(id));
    return result;
  }
}

/**
 * An ext4 file system on a file that is all holes: 10 ms for 5 GiB, 45 ms for 1 TiB. The discard that mkfs begins with tells it
 * that the file reads as zeros, so the inode tables count as written and the guest has nothing to do in the background;
 * nor need the journal be written. No block is kept for root alone, which is who most programs of a machine are.
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
