// Snapshots: take, find, restore and delete them. `machines.create({ snapshot_id })` creates a machine from a snapshot.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot, SnapshotCreate, SnapshotKind, SnapshotState } from '@sandbar/contract/snapshot.ts';
import type { CallOptions } from './call-options.ts';
import { type CreateOptions, machinePath } from './machines.ts';
import { acceptNotFound } from './service-errors.ts';
import type { Transport } from './transport.ts';

/** With `machineId`: only the snapshots of that machine. */
export type SnapshotFilter = { kind?: SnapshotKind; state?: SnapshotState; machineId?: string };

export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Takes a snapshot of a machine's disk, and with `memory` also of its processes. Resolves when the snapshot can be
   * used. A retry never takes a second snapshot.
   */
  create(
    machineId: string,
    spec: SnapshotCreate = {},
    { idempotencyKey = crypto.randomUUID(), ...call }: CreateOptions = {},
  ): Promise<Snapshot> {
    const headers = { 'idempotency-key': idempotencyKey };
    const request = { ...call, body: spec, headers, isRepeatable: true };
    return this.#transport.json('POST', `${machinePath(machineId)}/snapshots`, request);
  }

  /** The snapshots that match the filter, newest first. */
  async list({ machineId, ...query }: SnapshotFilter = {}, call: CallOptions = {}): Promise<Snapshot[]> {
    const path = machineId === undefined ? '/v1/snapshots' : `${machinePath(machineId)}/snapshots`;
    return (await this.#transport.json<{ snapshots: Snapshot[] }>('GET', path, { ...call, query })).snapshots;
  }

  get(id: string, call: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('GET', snapshotPath(id), call);
  }

  /** Sets the machine's disk back to the snapshot; later writes are lost. A running machine reboots. */
  restore(id: string, call: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${snapshotPath(id)}/restore`, { ...call, isRepeatable: true });
  }

  /** Deletes the snapshot. Machines that were created from it stay. */
  async delete(id: string, call: CallOptions = {}): Promise<void> {
    await this.#transport.run('DELETE', snapshotPath(id), call, acceptNotFound);
  }
}

function snapshotPath(id: string): string {
  return `/v1/snapshots/${encodeURIComponent(id)}`;
}
