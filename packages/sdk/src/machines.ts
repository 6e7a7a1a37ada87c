// Machines: create, find, change, stop, start and destroy them.
import { randomUUID } from 'node:crypto';
import type { Machine, MachineCreate, MachineUpdate } from '@sandbar/contract/machine.ts';
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import type { Snapshot, SnapshotCreate } from '@sandbar/contract/snapshot.ts';
import type { Transport } from './transport.ts';

export type MachineFilter = {
  state?: MachineState;
  name?: string;
  /** Only machines whose metadata has these values. */
  metadata?: Record<string, string>;
};

export type CallOptions = { signal?: AbortSignal | undefined };

export type CreateOptions = CallOptions & { idempotencyKey?: string | undefined };
export type DestroyOptions = CallOptions & {
  /** Keep the root disk as a detached volume. Its id is in `root_volume_id` of the returned machine. */
  preserveStorage?: boolean | undefined;
  /** Delete the machine's snapshots as well. Otherwise the destroy of a machine that has snapshots is a `conflict`. */
  deleteSnapshots?: boolean | undefined;
};

export class Machines {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a machine and resolves when it runs. Calls with the same `idempotencyKey` (1 to 255 printable characters)
   * within 24 hours return the same machine. By default the client generates a key for each call, so that its retries
   * never create a second machine.
   */
  create(spec: MachineCreate = {}, { signal, idempotencyKey = randomUUID() }: CreateOptions = {}): Promise<Machine> {
    const headers = { 'idempotency-key': idempotencyKey };
    return this.#transport.json('POST', '/v1/machines', { body: spec, headers, isRepeatable: true, signal });
  }

  /** The machines that match the filter, newest first. Destroyed machines are left out unless `state` asks for them. */
  async list(filter: MachineFilter = {}, { signal }: CallOptions = {}): Promise<Machine[]> {
    const { metadata = {}, ...rest } = filter;
    const byKey = Object.fromEntries(Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]));
    const query = { ...rest, ...byKey };
    return (await this.#transport.json<{ machines: Machine[] }>('GET', '/v1/machines', { query, signal })).machines;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('GET', machinePath(id), { signal });
  }

  /**
   * Changes the given fields and keeps the others. `metadata` replaces all metadata of the machine. `expires_in_sec`
   * counts from now; null means never.
   */
  update(id: string, changes: MachineUpdate, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('PATCH', machinePath(id), { body: changes, signal });
  }

  /** Stops the machine and keeps its disk. */
  stop(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/stop`, { isRepeatable: true, signal });
  }

  /** Starts a stopped machine and resolves when it runs. */
  start(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/start`, { isRepeatable: true, signal });
  }

  /** Takes a snapshot of the machine; the same as `snapshots.create`. */
  snapshot(id: string, spec: SnapshotCreate = {}, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('POST', `${machinePath(id)}/snapshots`, { body: spec, signal });
  }

  /** Destroys the machine and its disk, unless `preserveStorage` keeps the disk. Returns the destroyed machine. */
  destroy(id: string, { signal, preserveStorage, deleteSnapshots }: DestroyOptions = {}): Promise<Machine> {
    const query = { preserve_storage: preserveStorage, delete_snapshots: deleteSnapshots };
    return this.#transport.json<Machine>('DELETE', machinePath(id), { query, signal }, async (refusal) => {
      if (refusal.code !== 'not_found') throw refusal;
      // The service answers a second destroy with 404, but it still shows the destroyed machine.
      const machine = await this.get(id, { signal });
      if (machine.state !== 'destroyed') throw refusal;
      return machine;
    });
  }
}

export function machinePath(id: string): string {
  return `/v1/machines/${encodeURIComponent(id)}`;
}
