// Stores the snapshots of this host. `snapshots/<id>/` contains a record that names the disk's layers, and the memory
// files of a memory snapshot. The record is written last: a snapshot exists when its record exists. Copies of snapshots
// of other hosts have the same form in a folder of their own. They are only a cache, so no list of snapshots has them.
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { MemoryPlace } from '../hypervisor/driver.ts';
import { syncPath } from '../storage/durable.ts';
import type { LayerStore } from '../storage/layers.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';
import { type LoadingMemory, loadMemoryFiles, memoryDamage, memoryPlace } from './memory-files.ts';
import { SnapshotMemories } from './snapshot-memories.ts';
import type { MemoryRecord, SnapshotRecord } from './snapshot-record.ts';

const RECORD = 'snapshot.json';

/** Where the snapshots of this host are, and the copies of those of other hosts. */
type SnapshotDirs = { snapshots: string; snapshotCopies: string };
type SnapshotLog = { error(details: object, message: string): void };

export class SnapshotStore {
  readonly #dir: string;
  readonly #copiesDir: string;
  readonly #layers: LayerStore;
  readonly #log: SnapshotLog;
  readonly #memories: SnapshotMemories;

  /**
   * Removes snapshots that a crashed agent had not finished. `heldBytes`: limit for the host memory of loaded snapshots
   * that no machine is starting from.
   */
  constructor(dirs: SnapshotDirs, layers: LayerStore, log: SnapshotLog, heldBytes = 0) {
    this.#memories = new SnapshotMemories(heldBytes);
    this.#dir = dirs.snapshots;
    this.#copiesDir = dirs.snapshotCopies;
    this.#layers = layers;
    this.#log = log;
    for (const dir of [this.#dir, this.#copiesDir]) {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      for (const id of readdirSync(dir))
        if (!existsSync(join(dir, id, RECORD))) rmSync(join(dir, id), { recursive: true, force: true });
    }
  }

  /**
   * Returns the folder of a snapshot or of its copy, or where its folder would be. While a snapshot arrives that the host
   * has a copy of, the copy stays in use until the record of the snapshot is written.
   */
  dirOf(id: string): string {
    return !this.#isOwn(id) && this.#isCopy(id) ? join(this.#copiesDir, id) : this.#ownDirOf(id);
  }

  /** Returns a snapshot's record, or undefined when there is none. Throws when the record cannot be read. */
  read(id: string): SnapshotRecord | undefined {
    return readRecord<SnapshotRecord>(this.#recordPath(id));
  }

  /**
   * Returns the record of a complete snapshot. Undefined when there is none, when its record cannot be read, or when
   * some of its files are missing.
   */
  find(id: string): SnapshotRecord | undefined {
    try {
      const record = this.read(id);
      return record && this.#damageOf(id, record) === undefined ? record : undefined;
    } catch (err) {
      this.#log.error({ snapshot_id: id, err }, 'the record of a snapshot cannot be read');
      return undefined;
    }
  }

  /** Returns the ids of the snapshots of this host that have a record. */
  ids(): string[] {
    return readdirSync(this.#dir).filter((id) => this.#isOwn(id));
  }

  /** Returns the complete snapshots. */
  list(): HostSnapshot[] {
    return this.ids().flatMap((id) => {
      const record = this.find(id);
      return record ? [reportOf(id, record)] : [];
    });
  }

  /** Returns the records of all snapshots and copies. Throws when a record cannot be read. */
  records(): SnapshotRecord[] {
    return [...this.ids(), ...this.copyIds()].flatMap((id) => this.read(id) ?? []);
  }

  /** Returns the ids of all layers that snapshots and copies use. Throws when a record cannot be read. */
  layersInUse(): string[] {
    return this.records().flatMap(({ layers }) => layers);
  }

  /** Returns the ids of the copies of snapshots of other hosts. */
  copyIds(): string[] {
    return readdirSync(this.#copiesDir);
  }

  /** Notes that a copy is about to be used, so that it is kept. Does nothing for a snapshot of this host. */
  noteUse(id: string): void {
    const now = new Date();
    if (this.#isCopy(id) && !this.#isOwn(id)) utimesSync(join(this.#copiesDir, id, RECORD), now, now);
  }

  /**
   * Adds a copy of a snapshot durably, its record last. `fill` puts the memory files into the folder. After an error
   * nothing of the copy is left.
   */
  addCopy(id: string, record: SnapshotRecord, fill: (dir: string) => void): void {
    const dir = join(this.#copiesDir, id);
    try {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      fill(dir);
      writeRecordDurably(join(dir, RECORD), record);
    } catch (error) {
      rmSync(dir, { recursive: true, force: true });
      throw isDiskFull(error) ? diskFull(error) : error;
    }
  }

  /**
   * Removes the copies of other hosts' snapshots that no machine was made from for `ageMs`. Returns their ids. Machines that
   * were made from them keep their disks.
   */
  removeOldCopies(ageMs: number): string[] {
    const oldest = Date.now() - ageMs;
    const old = this.copyIds().filter((id) => statSync(join(this.#copiesDir, id, RECORD)).mtimeMs < oldest);
    for (const id of old) this.removeCopy(id);
    return old;
  }

  /** Removes a copy of another host's snapshot. Does nothing when there is none. */
  removeCopy(id: string): void {
    this.#memories.drop(id);
    removeFolder(join(this.#copiesDir, id));
  }

  /** Returns the incomplete snapshots with the reasons. */
  damaged(): { path: string; reason: string }[] {
    return this.ids().flatMap((id) => {
      const path = this.dirOf(id);
      try {
        const record = this.read(id);
        const reason = record && this.#damageOf(id, record);
        return reason === undefined ? [] : [{ path, reason }];
      } catch {
        return [{ path, reason: 'Its record cannot be read.' }];
      }
    });
  }

  /**
   * Makes the folder for a new snapshot and returns its path. This host may have a copy of the snapshot, if its machine
   * moves here. Throws `fleet_capacity` on a full disk, and `conflict` when the folder exists.
   */
  prepare(id: string): string {
    const dir = this.#ownDirOf(id);
    try {
      mkdirSync(dir, { mode: 0o700 });
      return dir;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST')
        throw new ServiceError('conflict', `snapshot ${id} is being taken`);
      throw isDiskFull(error) ? diskFull(error) : error;
    }
  }

  /**
   * Calls `work` with the memory of a snapshot. Its `ready` rejects with `conflict` when a file differs from what was
   * saved.
   */
  useMemory<T>(id: string, { checks }: MemoryRecord, work: (memory: LoadingMemory) => Promise<T>): Promise<T> {
    const load = () => {
      const { fd, ready } = loadMemoryFiles(this.dirOf(id), checks);
      const told = ready.catch((err) => {
        this.#log.error({ snapshot_id: id, err }, 'the memory of a snapshot cannot be loaded');
        const why = err instanceof Error ? err.message : String(err);
        throw new ServiceError('conflict', `memory snapshot ${id} cannot be used: ${why}`, { cause: err });
      });
      told.catch(() => {});
      return { fd, ready: told };
    };
    return this.#memories.use(id, load, work);
  }

  memoryPlaceOf(id: string, { checks }: MemoryRecord): MemoryPlace {
    return memoryPlace(this.dirOf(id), checks.bytes);
  }

  /**
   * Writes the record durably, which completes the snapshot. Throws `fleet_capacity` on a full disk, and `conflict`
   * when the snapshot was deleted while its memory was being saved; nothing of the snapshot is left then.
   */
  add(id: string, record: SnapshotRecord): HostSnapshot {
    const dir = this.#ownDirOf(id);
    try {
      // If the folder is gone, somebody deleted the snapshot together with its memory files.
      if (record.memory && !existsSync(dir))
        throw new ServiceError('conflict', `snapshot ${id} was deleted while it was taken`);
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      writeRecordDurably(join(dir, RECORD), record);
    } catch (error) {
      this.remove(id);
      throw isDiskFull(error) ? diskFull(error) : error;
    }
    return reportOf(id, record);
  }

  /**
   * Removes a snapshot, its record first. Does nothing when there is none. Its layers stay; the garbage collection
   * removes them when nothing else uses them.
   */
  remove(id: string): void {
    this.#memories.drop(id);
    removeFolder(this.#ownDirOf(id));
  }

  /** Returns the ids of the complete snapshots of a machine. */
  idsOf(machineId: string): string[] {
    return this.ids().filter((id) => this.find(id)?.machine_id === machineId);
  }

  /**
   * Removes all snapshots of a machine durably, also those that are not whole. A snapshot whose record cannot be read
   * stays.
   */
  async removeAllOf(machineId: string): Promise<void> {
    const ids = this.ids().filter((id) => this.#machineOf(id) === machineId);
    for (const id of ids) this.remove(id);
    if (ids.length > 0) await syncPath(this.#dir);
  }

  /** Whether this host has a snapshot of this id, which need not be complete, or is taking it. */
  hasOwn(id: string): boolean {
    return existsSync(this.#ownDirOf(id));
  }

  #machineOf(id: string): string | undefined {
    try {
      return readRecord<SnapshotRecord>(join(this.#ownDirOf(id), RECORD))?.machine_id;
    } catch {
      return undefined;
    }
  }

  #ownDirOf(id: string): string {
    return join(this.#dir, id);
  }

  /** Returns a sentence about the damage, or undefined. */
  #damageOf(id: string, { layers, memory }: SnapshotRecord): string | undefined {
    const missing = this.#layers.missingOf(layers);
    if (missing !== undefined) return `It stands on layer ${missing}, which is missing.`;
    return memory && memoryDamage(this.memoryPlaceOf(id, memory));
  }

  #isOwn(id: string): boolean {
    return existsSync(join(this.#ownDirOf(id), RECORD));
  }

  #isCopy(id: string): boolean {
    return existsSync(join(this.#copiesDir, id, RECORD));
  }

  #recordPath(id: string): string {
    return join(this.dirOf(id), RECORD);
  }
}

/** Removes a snapshot's folder, its record first. */
function removeFolder(dir: string): void {
  rmSync(join(dir, RECORD), { force: true });
  rmSync(dir, { recursive: true, force: true });
}

export function reportOf(id: string, record: SnapshotRecord): HostSnapshot {
  const { machine_id, kind, size_gb, stored_bytes } = record;
  return { snapshot_id: id, machine_id, kind, size_gb, stored_bytes };
}
