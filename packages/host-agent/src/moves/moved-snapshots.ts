// The snapshots of a machine move with it, because a restore needs them on the host of the machine. They share layers with
// the machine and with each other, so they are part of its stream and each layer is sent once. On the new host the
// records of the snapshots are written before the record of the machine. A crash in between leaves snapshots without
// their machine, which the next attempt and the removal of the copy delete.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { manifestOf, recordOf } from '../blobs/snapshot-transfer.ts';
import { chooseQemu, type ResumeChoice } from '../hypervisor/resume-needs.ts';
import type { MachineImage, MachineRecord } from '../machines/record.ts';
import { memoryPlace } from '../snapshots/memory-files.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { SentFile } from './archive.ts';
import type { MachineHead, MovedSnapshot } from './head.ts';
import type { WantedFile } from './received-files.ts';
import { sizeOf } from './volume-copies.ts';

/** The complete snapshots of a machine. `layers`: ids of the layers that the machine does not have. */
export type DescribedSnapshots = { moved: MovedSnapshot[]; layers: string[]; files: SentFile[] };

/**
 * Describes the snapshots of a machine that is to be sent. Throws `conflict` when one of them cannot be used on another
 * host.
 */
export function describeSnapshots(store: SnapshotStore, machineId: string, machine: MachineRecord): DescribedSnapshots {
  const moved: MovedSnapshot[] = [];
  const files: SentFile[] = [];
  const layers = new Set<string>();
  for (const id of store.idsOf(machineId)) {
    const record = store.find(id);
    if (!record) continue;
    if (record.image.rootfsPath !== machine.image.rootfsPath)
      throw new ServiceError('conflict', `snapshot ${id} stands on another image than its machine`);
    const manifest = manifestOf(record);
    if (record.memory && !manifest.memory)
      throw new ServiceError('conflict', `memory snapshot ${id} is of an older version, and stays on this host`);
    const place = record.memory && store.memoryPlaceOf(id, record.memory);
    const state_bytes = place ? sizeOf(place.statePath) : null;
    if (place && state_bytes !== null) {
      files.push({ path: place.memoryPath, bytes: place.bytes }, { path: place.statePath, bytes: state_bytes });
    }
    moved.push({ id, manifest, state_bytes });
    for (const layer of record.layers) layers.add(layer);
  }
  for (const layer of machine.layers) layers.delete(layer);
  return { moved, layers: [...layers], files };
}

/**
 * Checks the snapshots of a machine that arrives. `choices`: how this host can resume memory. Throws `conflict` when this
 * host cannot use one of them.
 */
export function checkMovedSnapshots(
  store: SnapshotStore,
  machineId: string,
  { snapshots = [], layers, snapshot_layers = [] }: MachineHead,
  choices: readonly ResumeChoice[],
): void {
  const sent = new Set([...layers, ...snapshot_layers].map(({ id }) => id));
  for (const { id, manifest, state_bytes } of snapshots) {
    const { machine_id, kind, memory } = manifest;
    const isOdd = (kind === 'memory') !== (memory !== undefined) || (memory === undefined) !== (state_bytes === null);
    if (machine_id !== machineId || isOdd || manifest.layers.some((layer) => !sent.has(layer)))
      throw new ServiceError('conflict', `what was sent of snapshot ${id} does not belong together`);
    if (store.hasOwn(id)) throw new ServiceError('conflict', `snapshot ${id} is on this host already`);
    const answer = memory && chooseQemu(memory.needs, choices);
    if (answer && 'missing' in answer)
      throw new ServiceError('conflict', `memory snapshot ${id} could not go on here: ${answer.missing}`);
  }
}

/** The snapshots of a machine while they arrive. */
export class ArrivingSnapshots {
  readonly #store: SnapshotStore;
  readonly #moved: readonly MovedSnapshot[];
  readonly #begun: string[] = [];

  constructor(store: SnapshotStore, moved: readonly MovedSnapshot[]) {
    this.#store = store;
    this.#moved = moved;
  }

  /**
   * Makes the folders of memory snapshots and returns where their files are to be written, in the order of the stream.
   * Throws `fleet_capacity` on a full disk.
   */
  prepare(): WantedFile[] {
    return this.#moved.flatMap(({ id, manifest: { memory }, state_bytes }) => {
      if (!memory || state_bytes === null) return [];
      const dir = this.#store.prepare(id);
      this.#begun.push(id);
      const { memoryPath, statePath, bytes } = memoryPlace(dir, memory.checks.bytes);
      return [
        { path: memoryPath, bytes },
        { path: statePath, bytes: state_bytes },
      ];
    });
  }

  /** Writes the records, whose layers must be in the store. `image`: the files of their image on this host. */
  add(image: MachineImage): void {
    for (const { id, manifest } of this.#moved) {
      this.#begun.push(id);
      this.#store.add(id, recordOf(manifest, image));
    }
  }

  /** Removes what is here of them. */
  abandon(): void {
    for (const id of this.#begun) this.#store.remove(id);
  }
}
