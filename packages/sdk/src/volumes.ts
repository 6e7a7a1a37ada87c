// Volumes: disks that outlive machines. Create and find them, attach them to machines, detach and delete them.
import type { Volume, VolumeAttach, VolumeCreate } from '@sandbar/contract/volume.ts';
import type { VolumeKind, VolumeState } from '@sandbar/contract/volume-states.ts';
import { acceptNotFound } from './errors.ts';
import type { CallOptions } from './machines.ts';
import type { Transport } from './transport.ts';

export type VolumeFilter = { kind?: VolumeKind; state?: VolumeState };

export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates an empty data volume; `size_gb` is in GiB. */
  create(spec: VolumeCreate, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', '/v1/volumes', { body: spec, signal });
  }

  /** The volumes that match the filter, newest first. */
  async list(filter: VolumeFilter = {}, { signal }: CallOptions = {}): Promise<Volume[]> {
    const query = { ...filter };
    return (await this.#transport.json<{ volumes: Volume[] }>('GET', '/v1/volumes', { query, signal })).volumes;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('GET', volumePath(id), { signal });
  }

  /**
   * Attaches the volume to a machine on the same host. If the machine runs, this resolves once the volume is mounted in
   * it. The default `mount_path` is `/mnt/<volume id>`.
   */
  attach(id: string, target: VolumeAttach, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/attach`, { body: target, isRepeatable: true, signal });
  }

  /** Unmounts and detaches the volume. While a process uses the volume, throws a `conflict` that names the process. */
  detach(id: string, { signal }: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/detach`, { isRepeatable: true, signal });
  }

  /** Deletes the volume and its data for good. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.run('DELETE', volumePath(id), { signal }, acceptNotFound);
  }
}

function volumePath(id: string): string {
  return `/v1/volumes/${encodeURIComponent(id)}`;
}
