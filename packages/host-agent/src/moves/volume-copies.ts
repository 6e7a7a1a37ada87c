// Sends volumes to other hosts and takes them in. The control plane decides which host has a volume; a copy that it has
// not confirmed yet, or does not need any more, does no harm. Each copy has a generation, which grows with every move:
// a late call of an earlier move neither brings a copy back nor deletes a newer one.
import { existsSync, statSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostVolume } from '@sandbar/contract/host-api.ts';
import { findSameImage, identifyImage } from '../images/same-image.ts';
import { DATA_DISK, type DataVolumes, ROOT_DISK } from '../storage/data-volumes.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { syncPath } from '../storage/durable.ts';
import type { LayerStore } from '../storage/layers.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';
import type { VolumeRecord, VolumeStore } from '../storage/volume-store.ts';
import { ArchiveReader, type SentFile, writeArchive } from './archive.ts';
import { checkHead, VERSION, VolumeHead } from './head.ts';
import { writeReceivedFiles } from './received-files.ts';
import { addLayers, renameDurably, wantedLayers } from './received-layers.ts';
import { Transfers } from './transfers.ts';

const RECORD = 'volume.json';
const GIB = 1024 ** 3;

export type VolumeCopiesOptions = {
  volumesDir: string;
  volumes: VolumeStore;
  dataVolumes: DataVolumes;
  layers: LayerStore;
  cacheDir: string;
  room: DiskRoom;
};

export class VolumeCopies {
  readonly #options: VolumeCopiesOptions;
  readonly #transfers = new Transfers();

  constructor(options: VolumeCopiesOptions) {
    this.#options = options;
    // A machine that gets the volume may write to it.
    options.dataVolumes.events.on('taken', (id) => this.#transfers.endSending(id));
  }

  /**
   * Returns the stream of a volume. Throws `not_found`, and `conflict` when a machine uses the volume or its disk
   * cannot be used elsewhere. The stream breaks off when the volume is taken or removed meanwhile.
   */
  async send(id: string): Promise<AsyncGenerator<Buffer>> {
    const { head, files } = await this.#describe(id);
    const { signal, end } = this.#transfers.beginSending(id);
    return ending(
      writeArchive(head, files, signal, () => this.#refuseInUse(id)),
      end,
    );
  }

  /**
   * Takes in the stream of a volume. Does nothing when this host has this generation already, and replaces an older
   * one. Throws `conflict` when this generation was removed, or when the disk's image is not on this host;
   * `fleet_capacity` on a full disk; `host_unavailable` when the stream breaks off. Nothing is left when it throws.
   */
  receive(id: string, generation: number, source: Readable): Promise<HostVolume> {
    return this.#transfers.receive(id, generation, source, async (signal) => {
      const present = this.#generationOf(id);
      if (present === generation) return this.#report(id);
      if (present !== undefined && present > generation)
        throw new ServiceError('conflict', `volume ${id} is here as generation ${present}`);
      if (present !== undefined) await this.#remove(id);
      this.#options.room.refuseWhenShort();
      const archive = await ArchiveReader.open(source);
      const head = checkHead(VolumeHead, archive.head);
      const dir = join(this.#options.volumesDir, id);
      try {
        await rm(dir, { recursive: true, force: true });
        await mkdir(dir, { mode: 0o700 });
        await this.#write(dir, head, generation, archive, signal);
        await syncPath(this.#options.volumesDir);
      } catch (error) {
        await rm(dir, { recursive: true, force: true });
        throw error;
      }
      return this.#report(id);
    });
  }

  /**
   * Removes a volume; does nothing when there is none, or only a newer generation than `generation`. Ends transfers of
   * it. Throws `conflict` while a machine has it.
   */
  remove(id: string, generation = Number.MAX_SAFE_INTEGER): Promise<void> {
    return this.#transfers.remove(id, generation, async () => {
      if ((this.#generationOf(id) ?? 0) <= generation) await this.#remove(id);
    });
  }

  async #remove(id: string): Promise<void> {
    this.#transfers.endSending(id);
    await this.#options.dataVolumes.remove(id);
    await this.#options.volumes.remove(id);
  }

  async #write(
    dir: string,
    head: VolumeHead,
    generation: number,
    archive: ArchiveReader,
    signal: AbortSignal,
  ): Promise<void> {
    const { layers, room } = this.#options;
    const disk = join(dir, head.kind === 'data' ? DATA_DISK : ROOT_DISK);
    const partial = `${disk}.partial`;
    const wanted = { path: partial, bytes: head.disk_bytes };
    if (head.kind === 'data') {
      if (head.disk_bytes !== head.size_gb * GIB) throw new ServiceError('conflict', 'the disk has another size');
      await writeReceivedFiles(archive, [wanted], room, signal);
      const { kind, size_gb, formatted } = head;
      writeRecordDurably(join(dir, RECORD), { kind, size_gb, formatted, generation });
      renameDurably(partial, disk);
      return;
    }
    const image = await findSameImage(this.#options.cacheDir, head.image);
    if (!image) throw lacksImage(head.image.stack);
    await writeReceivedFiles(archive, [...wantedLayers(dir, head.layers, layers), wanted], room, signal);
    const { kind, size_gb, machine_id } = head;
    const record: VolumeRecord = {
      ...{ kind, size_gb, machine_id, stack: head.image.stack, image, generation },
      layers: head.layers.map((layer) => layer.id),
    };
    writeRecordDurably(join(dir, RECORD), record);
    addLayers(dir, head.layers, layers, () => renameDurably(partial, disk));
  }

  async #describe(id: string): Promise<{ head: VolumeHead; files: SentFile[] }> {
    const { dataVolumes, volumes, layers, cacheDir } = this.#options;
    const data = dataVolumes.find(id);
    if (data) {
      this.#refuseInUse(id);
      const { kind, size_gb, formatted } = data;
      const disk_bytes = size_gb * GIB;
      const head = { version: VERSION, kind, size_gb, formatted, disk_bytes } as const;
      return { head, files: [{ path: dataVolumes.diskPath(id), bytes: disk_bytes }] };
    }
    const root = volumes.find(id);
    if (!root) throw new ServiceError('not_found', `this host has no volume ${id}`);
    const { kind, size_gb, machine_id, stack, image, layers: ids } = root;
    const identity = stack !== null && image ? await identifyImage(cacheDir, stack, image) : undefined;
    if (!identity || !ids) throw new ServiceError('conflict', `root volume ${id} has lost what it stands on`);
    const moved = ids.map((layer) => ({ id: layer, bytes: sizeOf(layers.pathOf(layer)) }));
    const path = volumes.diskPath(id);
    const disk_bytes = sizeOf(path);
    return {
      head: { version: VERSION, kind, size_gb, machine_id, image: identity, layers: moved, disk_bytes },
      files: [
        ...moved.map(({ id: layer, bytes }) => ({ path: layers.pathOf(layer), bytes })),
        { path, bytes: disk_bytes },
      ],
    };
  }

  #refuseInUse(id: string): void {
    const user = this.#options.dataVolumes.userOf(id);
    if (user !== undefined) throw new ServiceError('conflict', `volume ${id} is in use by machine ${user}`);
  }

  /** Returns the generation of the complete copy on this host. Volumes that never moved have the first one. */
  #generationOf(id: string): number | undefined {
    const dir = join(this.#options.volumesDir, id);
    if (![DATA_DISK, ROOT_DISK].some((name) => existsSync(join(dir, name)))) return undefined;
    return readRecord<{ generation?: number }>(join(dir, RECORD))?.generation ?? 1;
  }

  #report(id: string): HostVolume {
    const { dataVolumes, volumes } = this.#options;
    const record = dataVolumes.find(id) ?? volumes.find(id);
    if (!record) throw new Error(`the copy of volume ${id} is not there`);
    return { volume_id: id, size_gb: record.size_gb, kind: record.kind };
  }
}

export const lacksImage = (stack: string): ServiceError =>
  new ServiceError('conflict', `this host does not have the same build of the image "${stack}"`);

export const sizeOf = (path: string): number => {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) throw new ServiceError('conflict', 'a file of the disk is missing on its host');
  return stats.size;
};

/** Yields the pieces of `stream`. Calls `end` when it ends or fails, or when the reader stops early. */
export async function* ending(stream: AsyncGenerator<Buffer>, end: () => void): AsyncGenerator<Buffer> {
  try {
    yield* stream;
  } finally {
    end();
  }
}
