// Snapshots: take, find, restore and delete them. `machines.create({ snapshot_id })` creates a machine from a snapshot.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot, SnapshotCreate, SnapshotKind, SnapshotState } from '@sandbar/contract/snapshot.ts';
import { acceptNotFound } from './errors.ts';
import { type CallOptions, machinePath } from './machines.ts';
import type { Transport } from './transport.ts';

/** `machineId`: only the snapshots of this machine. */
export type SnapshotFilter = { kind?: SnapshotKind; state?: SnapshotState; machineId?: string };

export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Takes a snapshot of a machine's disk, and with `memory` also of its processes. Resolves when it can be used. */
  create(machineId: string, spec: SnapshotCreate = {}, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('POST', `${machinePath(machineId)}/snapshots`, { body: spec, signal });
  }

  /** The snapshots that match the filter, newest first. */
  async list({ machineId, ...query }: SnapshotFilter = {}, { signal }: CallOptions = {}): Promise<Snapshot[]> {
    const path = machineId === undefined ? '/v1/snapshots' : `${machinePath(machineId)}/snapshots`;
    return (await this.#transport.json<{ snapshots: Snapshot[] }>('GET', path, { query, signal })).snapshots;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('GET', snapshotPath(id), { signal });
  }

  /** Sets the machine's disk back to the snapshot; later writes are lost. A running machine reboots. */
  restore(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${snapshotPath(id)}/restore`, { isRepeatable: true, signal });
  }

  /** Deletes the snapshot. Machines that were created from it live on. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.run('DELETE', snapshotPath(id), { signal }, acceptNotFound);
  }
}

function snapshotPath(id: string): string {
  return `/v1/snapshots/${encodeURIComponent(id)}`;
}
