// The snapshots of this host: `snapshots/<id>/` holds a record of the layers that a disk consists of and, for a snapshot
// of memory, the files of that. A snapshot exists from the moment its record is there, which comes last.
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { LayerStore } from '../storage/layers.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';
import type { SnapshotRecord } from './snapshot-record.ts';

const RECORD = 'snapshot.json';

type SnapshotLog = { error(details: object, message: string): void };

export class SnapshotStore {
  readonly #dir: string;
  readonly #layers: LayerStore;
  readonly #log: SnapshotLog;

  /** Removes what an agent that died was making. */
  constructor(snapshotsDir: string, layers: LayerStore, log: SnapshotLog) {
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
      return record && this.#layers.missingOf(record.layers) === undefined ? record : undefined;
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
        const missing = this.#layers.missingOf(this.read(id)?.layers ?? []);
        return missing === undefined ? [] : [{ path, reason: `It stands on layer ${missing}, which is missing.` }];
      } catch {
        return [{ path, reason: 'Its record cannot be read.' }];
      }
    });
  }

  /** Makes it a snapshot, durably. Throws `fleet_capacity` on a full disk; it is none then. */
  add(id: string, record: SnapshotRecord): HostSnapshot {
    const made = mkdirSync(this.dirOf(id), { recursive: true, mode: 0o700 });
    try {
      writeRecordDurably(this.#recordPath(id), record);
    } catch (error) {
      if (made) rmSync(this.dirOf(id), { recursive: true, force: true });
      throw error;
    }
    return reportOf(id, record);
  }

  /** Removes it, its record first; one that is not there is removed already. Its layers are for others to judge. */
  remove(id: string): void {
    rmSync(this.#recordPath(id), { force: true });
    rmSync(this.dirOf(id), { recursive: true, force: true });
  }

  #recordPath(id: string): string {
    return join(this.#dir, id, RECORD);
  }
}

export function reportOf(id: string, record: SnapshotRecord): HostSnapshot {
  const { machine_id, kind, size_gb, stored_bytes } = record;
  return { snapshot_id: id, machine_id, kind, size_gb, stored_bytes };
}
