// The snapshots of this host: `snapshots/<id>/` holds a record of the layers that a disk consists of and, for a snapshot
// of memory, the files of that. A snapshot exists from the moment its record is there, which comes last.
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
   * Removes what an agent that died was making. `heldBytes`: host memory that loaded snapshots may take while no machine
   * starts from them.
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

  /** Its folder, which is there once its record is. */
  dirOf(id: string): string {
    return join(this.#dir, id);
  }

  /** Undefined when there is none. Throws when its record cannot be read. */
  read(id: string): SnapshotRecord | undefined {
    return readRecord<SnapshotRecord>(this.#recordPath(id));
  }

  /** Undefined, too, when its record cannot be read or what it consists of is not all there. */
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

  /** Those that are whole. */
  list(): HostSnapshot[] {
    return this.ids().flatMap((id) => {
      const record = this.find(id);
      return record ? [reportOf(id, record)] : [];
    });
  }

  /** What all of them stand on. Throws when the record of one cannot be read. */
  layersInUse(): string[] {
    return this.ids().flatMap((id) => this.read(id)?.layers ?? []);
  }

  /** Those that are not whole any more, and why. */
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

  /** Makes the folder of one that is about to be taken. Throws `fleet_capacity` on a full disk, `conflict` when it is there. */
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

  /** Runs `work` with the memory of a snapshot, whose `ready` rejects with `conflict` when it is not what was saved. */
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
   * Makes it a snapshot, durably. Throws `fleet_capacity` on a full disk, `conflict` when it was removed while its memory was
   * saved; nothing is left of it then.
   */
  add(id: string, record: SnapshotRecord): HostSnapshot {
    try {
      // Whoever removed the folder of one with memory has removed its files.
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

  /** Removes it, its record first; one that is not there is removed already. Its layers are for others to judge. */
  remove(id: string): void {
    this.#memories.drop(id);
    rmSync(this.#recordPath(id), { force: true });
    rmSync(this.dirOf(id), { recursive: true, force: true });
  }

  /** A sentence, or undefined. */
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
