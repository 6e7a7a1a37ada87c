// Stores the snapshots of this host. `snapshots/<id>/` contains a record that names the disk's layers, and the memory
// files of a memory snapshot. The record is written last: a snapshot exists when its record exists.
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { MemoryPlace } from '../hypervisor/driver.ts';
import type { LayerStore } from '../storage/layers.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';
import { type LoadingMemory, loadMemoryFiles, memoryDamage, memoryPlace } from './memory-files.ts';
import { SnapshotMemories } from './snapshot-memories.ts';
import type { MemoryRecord, SnapshotRecord } from './snapshot-record.ts';

const RECORD = 'snapshot.json';

type SnapshotLog = { error(details: object, message: string): void };

export class SnapshotStore {
  readonly #dir: string;
  readonly #layers: LayerStore;
  readonly #log: SnapshotLog;
  readonly #memories: SnapshotMemories;

  /**
   * Removes snapshots that a crashed agent had not finished. `heldBytes`: limit for the host memory of loaded snapshots
   * that no machine is starting from.
   */
  constructor(snapshotsDir: string, layers: LayerStore, log: SnapshotLog, heldBytes = 0) {
    this.#memories = new SnapshotMemories(heldBytes);
    this.#dir = snapshotsDir;
    this.#layers = layers;
    this.#log = log;
    mkdirSync(snapshotsDir, { recursive: true, mode: 0o700 });
    for (const id of readdirSync(snapshotsDir))
      if (!existsSync(this.#recordPath(id))) rmSync(this.dirOf(id), { recursive: true, force: true });
  }

  /** Returns the folder of a snapshot, whether it exists or not. */
  dirOf(id: string): string {
    return join(this.#dir, id);
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

  ids(): string[] {
    return readdirSync(this.#dir);
  }

  /** Returns the complete snapshots. */
  list(): HostSnapshot[] {
    return this.ids().flatMap((id) => {
      const record = this.find(id);
      return record ? [reportOf(id, record)] : [];
    });
  }

  /** Returns the ids of all layers that snapshots use. Throws when a record cannot be read. */
  layersInUse(): string[] {
    return this.ids().flatMap((id) => this.read(id)?.layers ?? []);
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
   * Makes the folder for a new snapshot and returns its path. Throws `fleet_capacity` on a full disk, and `conflict`
   * when the folder exists.
   */
  prepare(id: string): string {
    try {
      mkdirSync(this.dirOf(id), { mode: 0o700 });
      return this.dirOf(id);
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
    try {
      // If the folder is gone, somebody deleted the snapshot together with its memory files.
      if (record.memory && !existsSync(this.dirOf(id)))
        throw new ServiceError('conflict', `snapshot ${id} was deleted while it was taken`);
      mkdirSync(this.dirOf(id), { recursive: true, mode: 0o700 });
      writeRecordDurably(this.#recordPath(id), record);
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
    rmSync(this.#recordPath(id), { force: true });
    rmSync(this.dirOf(id), { recursive: true, force: true });
  }

  /** Returns a sentence about the damage, or undefined. */
  #damageOf(id: string, { layers, memory }: SnapshotRecord): string | undefined {
    const missing = this.#layers.missingOf(layers);
    if (missing !== undefined) return `It stands on layer ${missing}, which is missing.`;
    return memory && memoryDamage(this.memoryPlaceOf(id, memory));
  }

  #recordPath(id: string): string {
    return join(this.#dir, id, RECORD);
  }
}

export function reportOf(id: string, record: SnapshotRecord): HostSnapshot {
  const { machine_id, kind, size_gb, stored_bytes } = record;
  return { snapshot_id: id, machine_id, kind, size_gb, stored_bytes };
}
