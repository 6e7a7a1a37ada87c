// Machines: make, find, stop, start and destroy them.
import type { Machine, MachineCreate, MachineState } from '@sandbar/contract/machine.ts';
import type { Transport } from './transport.ts';

export type MachineFilter = {
  state?: MachineState;
  name?: string;
  /** Only machines whose metadata has these values. */
  metadata?: Record<string, string>;
};

export type CallOptions = { signal?: AbortSignal | undefined };

export class Machines {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a machine and resolves when it runs. */
  create(spec: MachineCreate = {}, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('POST', '/v1/machines', { body: spec, signal });
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

  /** Destroys it with its disk. */
  destroy(id: string, { signal }: CallOptions = {}): Promise<Machine> {
    return this.#transport.json('DELETE', machinePath(id), { signal });
  }
}

export function machinePath(id: string): string {
  return `/v1/machines/${encodeURIComponent(id)}`;
}
