// Sends stopped machines to other hosts and takes them in: the root disk with its layers, the output of ended jobs, the
// snapshots (moved-snapshots.ts), and the record. Data volumes go on their own (volume-copies.ts). The record is written
// last, so a machine whose files have not all arrived does not exist, and the next start of the agent removes them.
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { ReceivedMachine } from '@sandbar/contract/host-api.ts';
import type { ResumeChoice } from '../hypervisor/resume-needs.ts';
import { findSameImage, identifyImage } from '../images/same-image.ts';
import { type MachineImage, type MachineRecord, NEW_DISK, RECORD } from '../machines/record.ts';
import type { MachineRegistry } from '../machines/registry.ts';
import { DISK } from '../machines/root-disk.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { syncPath } from '../storage/durable.ts';
import type { Garbage } from '../storage/garbage.ts';
import type { LayerStore } from '../storage/layers.ts';
import { writeRecordDurably } from '../storage/record-file.ts';
import { ArchiveReader, type SentFile, writeArchive } from './archive.ts';
import {
  checkHead,
  MachineHead,
  type MovedLayer,
  VERSION,
  VERSION_WITH_SNAPSHOTS,
  VERSION_WITH_SYSTEM_ID,
} from './head.ts';
import { ArrivingSnapshots, checkMovedSnapshots, describeSnapshots } from './moved-snapshots.ts';
import { writeReceivedFiles } from './received-files.ts';
import { addLayers, wantedLayers } from './received-layers.ts';
import { Transfers } from './transfers.ts';
import { ending, lacksImage, sizeOf } from './volume-copies.ts';

const JOBS = 'jobs';

export type MachineCopiesOptions = {
  machinesDir: string;
  machines: MachineRegistry;
  layers: LayerStore;
  snapshots: SnapshotStore;
  garbage: Pick<Garbage, 'collectSoon'>;
  cacheDir: string;
  room: DiskRoom;
  bootId: string;
  /** Says how this host can resume saved memory. */
  resumeChoices: () => Promise<readonly ResumeChoice[]>;
};

export class MachineCopies {
  readonly #options: MachineCopiesOptions;
  readonly #transfers = new Transfers();

  constructor(options: MachineCopiesOptions) {
    this.#options = options;
  }

  /**
   * Returns the stream of a stopped machine. Throws `not_found`, and `conflict` when it is not stopped or its disk cannot
   * be used elsewhere. The stream breaks off when the machine changes meanwhile.
   */
  async send(id: string): Promise<AsyncGenerator<Buffer>> {
    const machine = this.#options.machines.get(id);
    const record = await machine.describeCopy();
    const { head, files } = await this.#describe(id, record);
    const { signal, end } = this.#transfers.beginSending(id);
    const check = () => {
      if (!machine.isUnchangedSince(record)) throw new Error(`machine ${id} changed while it was sent`);
    };
    return ending(writeArchive(head, files, signal, check), end);
  }

  /**
   * Takes in the stream of a machine, which is stopped then. Does nothing when this host has this generation already.
   * Throws `conflict` when this generation was removed, another one is here, the disk's image is not on this host, or a
   * memory snapshot could not go on here; `fleet_capacity` on a full disk or without a free address; `host_unavailable`
   * when the stream breaks off. Nothing is left when it throws.
   */
  receive(id: string, generation: number, source: Readable): Promise<ReceivedMachine> {
    return this.#transfers.receive(id, generation, source, async (signal) => {
      const { machines, machinesDir, room, snapshots } = this.#options;
      machines.refuseDestroyed(id, generation);
      if (machines.has(id)) {
        const report = machines.get(id).report();
        if (report.generation === generation) return { ...report, snapshot_ids: snapshots.idsOf(id) };
        throw new ServiceError('conflict', `machine ${id} is here as generation ${report.generation}`);
      }
      room.refuseWhenShort();
      const archive = await ArchiveReader.open(source);
      const head = checkHead(MachineHead, archive.head);
      const image = await findSameImage(this.#options.cacheDir, head.image);
      if (!image) throw lacksImage(head.image.stack);
      // An attempt that was cut off may have left snapshots: their machine is not here.
      await snapshots.removeAllOf(id);
      checkMovedSnapshots(snapshots, id, head, await this.#options.resumeChoices());
      const dir = join(machinesDir, id);
      const arriving = new ArrivingSnapshots(snapshots, head.snapshots ?? []);
      const endArrival = machines.beginArrival(id);
      try {
        await rm(dir, { recursive: true, force: true });
        await mkdir(dir, { mode: 0o700 });
        await this.#writeFiles(dir, head, arriving, archive, signal);
        const report = await machines.takeIn(id, generation, (address) =>
          this.#name(dir, head, arriving, { generation, image, address }),
        );
        return { ...report, snapshot_ids: snapshots.idsOf(id) };
      } catch (error) {
        arriving.abandon();
        await rm(dir, { recursive: true, force: true });
        throw error;
      } finally {
        endArrival();
      }
    });
  }

  /**
   * Removes a machine, see {@link MachineRegistry.destroy}, and with `withSnapshots` also its snapshots. Ends transfers of
   * it. The snapshots stay when a newer generation of the machine is here, because they belong to that one.
   */
  remove(
    id: string,
    generation: number,
    { keepVolumeId, withSnapshots = false }: { keepVolumeId?: string | undefined; withSnapshots?: boolean } = {},
  ): Promise<void> {
    const { machines, snapshots, garbage } = this.#options;
    this.#transfers.endSending(id);
    return this.#transfers.remove(id, generation, async () => {
      await machines.destroy(id, generation, keepVolumeId);
      if (!withSnapshots) return;
      await snapshots.removeAllOf(id);
      garbage.collectSoon();
    });
  }

  async #writeFiles(
    dir: string,
    head: MachineHead,
    arriving: ArrivingSnapshots,
    archive: ArchiveReader,
    signal: AbortSignal,
  ): Promise<void> {
    const { layers, room, machinesDir } = this.#options;
    const folders = [...new Set(head.output.map(({ path }) => path.slice(0, path.indexOf('/'))))];
    for (const folder of folders) mkdirSync(join(dir, JOBS, folder), { recursive: true, mode: 0o700 });
    const disk = head.disk_bytes === null ? [] : [{ path: join(dir, DISK), bytes: head.disk_bytes }];
    const output = head.output.map(({ path, bytes }) => ({ path: join(dir, JOBS, path), bytes }));
    const wanted = [...wantedLayers(dir, layersOf(head), layers), ...disk, ...output, ...arriving.prepare()];
    await writeReceivedFiles(archive, wanted, room, signal);
    for (const folder of folders) await syncPath(join(dir, JOBS, folder));
    for (const folder of [join(dir, JOBS), dir, machinesDir]) await syncPath(folder);
  }

  /** Adds the layers and writes the records that name them. */
  #name(
    dir: string,
    head: MachineHead,
    arriving: ArrivingSnapshots,
    here: { generation: number; image: MachineImage; address: string },
  ): void {
    const { generation, image, address } = here;
    const record: MachineRecord = {
      ...NEW_DISK,
      ...{ generation, desired: 'stopped', image, isAddressOpen: false, bootId: this.#options.bootId },
      spec: { ...head.spec, private_ip: address },
      systemId: head.system_id ?? null,
      layers: head.layers.map((layer) => layer.id),
      hasDisk: head.has_disk,
      restoredGeneration: head.restored_generation,
      bootGeneration: head.boot_generation,
      volumes: head.volumes.map((volume) => ({ ...volume, isMounted: false })),
      status: 'stopped',
      reason: head.reason,
    };
    addLayers(dir, layersOf(head), this.#options.layers, () => {
      arriving.add(image);
      writeRecordDurably(join(dir, RECORD), record);
    });
  }

  async #describe(id: string, record: MachineRecord): Promise<{ head: MachineHead; files: SentFile[] }> {
    const { layers, cacheDir, machinesDir, snapshots } = this.#options;
    const { spec, systemId, image } = record;
    if (record.resumes !== null) throw new ServiceError('conflict', 'the machine has not started from its memory yet');
    const identity = await identifyImage(cacheDir, spec.stack, image);
    if (!identity)
      throw new ServiceError('conflict', 'the image of the machine is not in the cache of its host any more');
    const below = (ids: readonly string[]) => ids.map((layer) => ({ id: layer, bytes: sizeOf(layers.pathOf(layer)) }));
    const described = describeSnapshots(snapshots, id, record);
    const dir = join(machinesDir, id);
    const disk = join(dir, DISK);
    const disk_bytes = existsSync(disk) ? sizeOf(disk) : null;
    const output = listOutput(join(dir, JOBS));
    const head: MachineHead = {
      ...{ version: VERSION, kind: 'machine', spec, image: identity, layers: below(record.layers), disk_bytes },
      ...{ has_disk: record.hasDisk, restored_generation: record.restoredGeneration, reason: record.reason },
      boot_generation: record.bootGeneration,
      volumes: record.volumes.map(({ volumeId, slot, path }) => ({ volumeId, slot, path })),
      output,
      ...(described.moved.length === 0
        ? {}
        : { version: VERSION_WITH_SNAPSHOTS, snapshots: described.moved, snapshot_layers: below(described.layers) }),
      ...(systemId === null ? {} : { version: VERSION_WITH_SYSTEM_ID, system_id: systemId }),
    };
    const files = [
      ...layersOf(head).map((layer) => ({ path: layers.pathOf(layer.id), bytes: layer.bytes })),
      ...(disk_bytes === null ? [] : [{ path: disk, bytes: disk_bytes }]),
      ...output.map(({ path, bytes }) => ({ path: join(dir, JOBS, path), bytes })),
      ...described.files,
    ];
    return { head, files };
  }
}

/** Returns all layers of a stream, those of the machine first. */
const layersOf = ({ layers, snapshot_layers = [] }: MachineHead): MovedLayer[] => [...layers, ...snapshot_layers];

/** Returns the files of the jobs of a stopped machine, all of which have ended. */
function listOutput(dir: string): { path: string; bytes: number }[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir).flatMap((jobId) =>
    readdirSync(join(dir, jobId))
      .filter((name) => OUTPUT_FILES.includes(name))
      .map((name) => ({ path: `${jobId}/${name}`, bytes: sizeOf(join(dir, jobId, name)) })),
  );
}

const OUTPUT_FILES: readonly string[] = ['job.json', 'stdout', 'stderr'];
