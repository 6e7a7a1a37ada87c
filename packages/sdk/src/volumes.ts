// Volumes: find and delete disks that outlived their machines.
import type { Volume, VolumeKind, VolumeState } from '@sandbar/contract/volume.ts';
import type { CallOptions } from './machines.ts';
import type { Transport } from './transport.ts';

export type VolumeFilter = { kind?: VolumeKind; state?: VolumeState };

export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All volumes, or those that the filter names; newest first. */
  async list(filter: VolumeFilter = {}, { signal }: CallOptions = {}): Promise<Volume[]> {
    const query = { ...filter };
    return (await this.#transport.json<{ volumes: Volume[] }>('GET', '/v1/volumes', { query, signal })).volumes;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('GET', volumePath(id), { signal });
  }

  /** Its data is gone for good. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.send('DELETE', volumePath(id), { signal });
  }
}

function volumePath(id: string): string {
  return `/v1/volumes/${encodeURIComponent(id)}`;
}
