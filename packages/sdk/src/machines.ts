// Machines: create, find, change, stop, start and destroy them.
import type { Machine, MachineCreate, MachineUpdate } from '@sandbar/contract/machine.ts';
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import type { CallOptions } from './call-options.ts';
import type { Transport } from './transport.ts';

export type MachineFilter = {
  state?: MachineState | undefined;
  name?: string | undefined;
  /** Only machines whose metadata has these values. */
  metadata?: Record<string, string> | undefined;
};

export type CreateOptions = CallOptions & {
  /** 1 to 255 printable characters. Within 24 hours, every create with the same key returns the same object. */
  idempotencyKey?: string | undefined;
};
export type DestroyOptions = CallOptions & {
  /** Keep the root disk as a detached volume. Its id is in `root_volume_id` of the returned machine. */
  preserveStorage?: boolean | undefined;
  /** Delete the machine's snapshots as well. Without this, a machine that has snapshots is refused with `conflict`. */
  deleteSnapshots?: boolean | undefined;
};

export class Machines {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a machine and resolves when it runs. By default the client generates an `idempotencyKey` for each call, so
   * that its retries never create a second machine.
   */
  create(
    spec: MachineCreate = {},
    { idempotencyKey = crypto.randomUUID(), ...call }: CreateOptions = {},
  ): Promise<Machine> {
    const headers = { 'idempotency-key': idempotencyKey };
    return this.#transport.json('POST', '/v1/machines', { ...call, body: spec, headers, isRepeatable: true });
  }

  /** The machines that match the filter, newest first. Destroyed machines are left out unless `state` asks for them. */
  async list(filter: MachineFilter = {}, call: CallOptions = {}): Promise<Machine[]> {
    const { metadata = {}, ...rest } = filter;
    const byKey = Object.fromEntries(Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]));
    const query = { ...rest, ...byKey };
    return (await this.#transport.json<{ machines: Machine[] }>('GET', '/v1/machines', { ...call, query })).machines;
  }

  get(id: string, call: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('GET', machinePath(id), call);
  }

  /**
   * Changes the given fields and keeps the others. `metadata` replaces all metadata of the machine. `expires_in_sec`
   * counts from now; null means never.
   */
  update(id: string, changes: MachineUpdate, call: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('PATCH', machinePath(id), { ...call, body: changes });
  }

  /** Stops the machine and keeps its disk. */
  stop(id: string, call: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/stop`, { ...call, isRepeatable: true });
  }

  /** Starts a stopped machine and resolves when it runs. */
  start(id: string, call: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', `${machinePath(id)}/start`, { ...call, isRepeatable: true });
  }

  /** Destroys the machine and its disk, unless `preserveStorage` keeps the disk. Returns the destroyed machine. */
  destroy(id: string, { preserveStorage, deleteSnapshots, ...call }: DestroyOptions = {}): Promise<Machine> {
    const query = { preserve_storage: preserveStorage, delete_snapshots: deleteSnapshots };
    return this.#transport.json<Machine>('DELETE', machinePath(id), { ...call, query }, async (refusal) => {
      if (refusal.code !== 'not_found') throw refusal;
      // The service answers a second destroy with 404, but it still shows the destroyed machine.
      const machine = await this.get(id, call);
      if (machine.state !== 'destroyed') throw refusal;
      return machine;
    });
  }
}

export function machinePath(id: string): string {
  return `/v1/machines/${encodeURIComponent(id)}`;
}
