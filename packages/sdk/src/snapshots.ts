// Snapshots: take them of machines, find them, go back to them, delete them. `machines.create({ snapshot_id })` makes a
// machine from one.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot, SnapshotCreate, SnapshotKind, SnapshotState } from '@sandbar/contract/snapshot.ts';
import { type CallOptions, machinePath } from './machines.ts';
import type { Transport } from './transport.ts';

/** `machineId`: only those of this machine. */
export type SnapshotFilter = { kind?: SnapshotKind; state?: SnapshotState; machineId?: string };

export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Takes one of a machine's disk; with `memory`, of its processes as well. Resolves when it can be used. */
  create(machineId: string, spec: SnapshotCreate = {}, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('POST', `${machinePath(machineId)}/snapshots`, { body: spec, signal });
  }

  /** All snapshots, or those that the filter names; newest first. */
  async list({ machineId, ...query }: SnapshotFilter = {}, { signal }: CallOptions = {}): Promise<Snapshot[]> {
    const path = machineId === undefined ? '/v1/snapshots' : `${machinePath(machineId)}/snapshots`;
    return (await this.#transport.json<{ snapshots: Snapshot[] }>('GET', path, { query, signal })).snapshots;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('GET', snapshotPath(id), { signal });
  }

  /** Brings the disk of its machine back; a running one reboots into it. What was written since is gone. */
  restore(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${snapshotPath(id)}/restore`, { signal });
  }

  /** Machines made from it live on. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.send('DELETE', snapshotPath(id), { signal });
  }
}

function snapshotPath(id: string): string {
  return `/v1/snapshots/${encodeURIComponent(id)}`;
}
