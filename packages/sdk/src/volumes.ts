// Volumes: disks with a life of their own. Make and find them, attach them to machines, delete them.
import type { Volume, VolumeAttach, VolumeCreate, VolumeKind, VolumeState } from '@sandbar/contract/volume.ts';
import type { CallOptions } from './machines.ts';
import type { Transport } from './transport.ts';

export type VolumeFilter = { kind?: VolumeKind; state?: VolumeState };

export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes an empty data volume; `size_gb` is in GiB. */
  create(spec: VolumeCreate, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', '/v1/volumes', { body: spec, signal });
  }

  /** All volumes, or those that the filter names; newest first. */
  async list(filter: VolumeFilter = {}, { signal }: CallOptions = {}): Promise<Volume[]> {
    const query = { ...filter };
    return (await this.#transport.json<{ volumes: Volume[] }>('GET', '/v1/volumes', { query, signal })).volumes;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('GET', volumePath(id), { signal });
  }

  /**
   * Attaches it to a machine of its host, and resolves when a running one has it mounted; `mount_path` is
   * `/mnt/<volume id>` unless given.
   */
  attach(id: string, target: VolumeAttach, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/attach`, { body: target, signal });
  }

  /** Unmounts and detaches it. One that is in use is a `conflict` that names what holds it. */
  detach(id: string, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/detach`, { signal });
  }

  /** Its data is gone for good. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.send('DELETE', volumePath(id), { signal });
  }
}

function volumePath(id: string): string {
  return `/v1/volumes/${encodeURIComponent(id)}`;
}
