// Machines: make, find, stop, start and destroy them.
import type { Machine, MachineCreate, MachineState } from '@sandbar/contract/machine.ts';
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
/**
 * `preserveStorage`: the root disk is kept as a detached volume, which `root_volume_id` of the answer names.
 * `deleteSnapshots`: its snapshots go with it; without it a machine that has some is a `conflict`.
 */
export type DestroyOptions = CallOptions & {
  preserveStorage?: boolean | undefined;
  deleteSnapshots?: boolean | undefined;
};

export class Machines {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a machine and resolves when it runs. With an `idempotencyKey` (1 to 255 printable characters) a retry finds the
   * machine of the first call instead of making another, for 24 hours.
   */
  create(spec: MachineCreate = {}, { signal, idempotencyKey }: CreateOptions = {}): Promise<Machine> {
    const headers: Record<string, string> = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
    return this.#transport.json('POST', '/v1/machines', { body: spec, headers, signal });
  }

  /** All machines that are not destroyed, or those that the filter names; newest first. */
  async list(filter: MachineFilter = {}, { signal }: CallOptions = {}): Promise<Machine[]> {
    const { metadata = {}, ...rest } = filter;
    const byKey = Object.fromEntries(Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]));
    const query = { ...rest, ...byKey };
    return (await this.#transport.json<{ machines: Machine[] }>('GET', '/v1/machines', { query, signal })).machines;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('GET', machinePath(id), { signal });
  }

  /** Stops it; its disk is kept. */
  stop(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/stop`, { signal });
  }

  /** Starts a stopped machine and resolves when it runs. */
  start(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/start`, { signal });
  }

  /** Takes a snapshot of it; the same as `snapshots.create`. */
  snapshot(id: string, spec: SnapshotCreate = {}, { signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json('POST', `${machinePath(id)}/snapshots`, { body: spec, signal });
  }

  /** Destroys it with its disk, unless `preserveStorage` says otherwise. */
  destroy(id: string, { signal, preserveStorage, deleteSnapshots }: DestroyOptions = {}): Promise<Machine> {
    const query = { preserve_storage: preserveStorage, delete_snapshots: deleteSnapshots };
    return this.#transport.json('DELETE', machinePath(id), { query, signal });
  }
}

export function machinePath(id: string): string {
  return `/v1/machines/${encodeURIComponent(id)}`;
}
