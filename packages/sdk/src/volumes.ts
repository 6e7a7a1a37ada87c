// Volumes: disks that outlive machines. Create and find them, attach them to machines, detach and delete them.
import type { Volume, VolumeAttach, VolumeCreate } from '@sandbar/contract/volume.ts';
import type { VolumeKind, VolumeState } from '@sandbar/contract/volume-states.ts';
import type { CallOptions } from './call-options.ts';
import type { CreateOptions } from './machines.ts';
import { acceptNotFound } from './service-errors.ts';
import type { Transport } from './transport.ts';

export type VolumeFilter = { kind?: VolumeKind; state?: VolumeState };

export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates an empty data volume. `size_gb` is in GiB. A retry never creates a second volume. */
  create(spec: VolumeCreate, { idempotencyKey = crypto.randomUUID(), ...call }: CreateOptions = {}): Promise<Volume> {
    const headers = { 'idempotency-key': idempotencyKey };
    return this.#transport.json('POST', '/v1/volumes', { ...call, body: spec, headers, isRepeatable: true });
  }

  /** The volumes that match the filter, newest first. */
  async list(filter: VolumeFilter = {}, call: CallOptions = {}): Promise<Volume[]> {
    const query = { ...filter };
    return (await this.#transport.json<{ volumes: Volume[] }>('GET', '/v1/volumes', { ...call, query })).volumes;
  }

  get(id: string, call: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('GET', volumePath(id), call);
  }

  /**
   * Attaches the volume to a machine. A volume on another host is copied to the machine's host first; when that takes
   * longer than a minute, throws a `conflict`, and a later call waits on. If the machine runs, this resolves once the volume is mounted in
   * it. The default `mount_path` is `/mnt/<volume id>`.
   */
  attach(id: string, target: VolumeAttach, call: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/attach`, { ...call, body: target, isRepeatable: true });
  }

  /** Unmounts and detaches the volume. While a process uses the volume, throws a `conflict` that names the process. */
  detach(id: string, call: CallOptions = {}): Promise<Volume> {
    return this.#transport.json('POST', `${volumePath(id)}/detach`, { ...call, isRepeatable: true });
  }

  /** Deletes the volume and its data for good. */
  async delete(id: string, call: CallOptions = {}): Promise<void> {
    await this.#transport.run('DELETE', volumePath(id), call, acceptNotFound);
  }
}

function volumePath(id: string): string {
  return `/v1/volumes/${encodeURIComponent(id)}`;
}
