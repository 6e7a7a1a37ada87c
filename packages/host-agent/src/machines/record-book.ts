// Owns the record of one machine, in memory and on disk. A change is written to disk first, so that a restarted agent
// finds everything that is in memory.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { syncPath } from '../storage/durable.ts';
import { writeRecord, writeRecordDurably } from '../storage/record-file.ts';
import { type MachineRecord, RECORD } from './record.ts';

type Changes = Partial<MachineRecord>;
type Log = { warn(details: object, message: string): void };

export class RecordBook {
  readonly #machineId: string;
  /** The machine's folder. */
  readonly #dir: string;
  readonly #log: Log;
  #record: MachineRecord;
  /** Whether the file has the same record as the memory. */
  #isWritten = false;
  #synced: Promise<void> = Promise.resolve();

  constructor(machineId: string, dir: string, record: MachineRecord, log: Log) {
    this.#machineId = machineId;
    this.#dir = dir;
    this.#record = record;
    this.#log = log;
  }

  get record(): MachineRecord {
    return this.#record;
  }

  /**
   * Changes the record. Writes nothing if nothing changes. Throws `fleet_capacity` on a full disk; the record is
   * unchanged then.
   */
  save(changes: Changes): void {
    if (!this.#isWritten || !hasAlready(this.#record, changes)) this.#write(changes, writeRecord);
  }

  /** Like {@link save}, and the change also survives a power failure. */
  saveDurably(changes: Changes): void {
    this.#write(changes, writeRecordDurably);
  }

  /**
   * Like {@link save}, but on a full disk it keeps the change in memory instead of failing. For changes that must not
   * fail.
   */
  note(changes: Changes): void {
    try {
      this.save(changes);
    } catch (err) {
      if (!(err instanceof ServiceError)) throw err;
      this.#record = { ...this.#record, ...changes };
      this.#isWritten = false;
      this.#log.warn({ machine_id: this.#machineId, err }, 'the disk is full: a change is not recorded');
    }
  }

  /** Raises the generation in memory only. Later requests with an older generation are then refused. */
  raiseGeneration(generation: number): void {
    this.#record.generation = generation;
    this.#isWritten = false;
  }

  /** Throws `conflict` for a generation that is older than the machine's. */
  refuseStale(generation: number): void {
    if (generation >= this.#record.generation) return;
    throw new ServiceError('conflict', `generation ${generation} is behind ${this.#record.generation}`);
  }

  /** Flushes the record to disk in the background. {@link synced} resolves when that is done. */
  beginSync(): void {
    this.#synced = syncPath(join(this.#dir, RECORD)).then(() => syncPath(this.#dir));
    this.#synced.catch(() => {});
  }

  /** Resolves when the flush of {@link beginSync} is done. Rejects when the flush failed. */
  get synced(): Promise<void> {
    return this.#synced;
  }

  #write(changes: Changes, write: (path: string, record: MachineRecord) => void): void {
    const record = { ...this.#record, ...changes };
    // If the folder is gone, the machine was destroyed, so do not write its record again.
    if (existsSync(this.#dir)) write(join(this.#dir, RECORD), record);
    this.#record = record;
    this.#isWritten = true;
  }
}

/**
 * Whether the record already has the value of each field of `changes`. A list or an object counts as different, even if
 * its content is the same.
 */
function hasAlready(record: MachineRecord, changes: Changes): boolean {
  return Object.entries(changes).every(([field, value]) => Object.is(record[field as keyof MachineRecord], value));
}
