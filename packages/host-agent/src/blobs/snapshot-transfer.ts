// Gives the files of a snapshot of this host to the object store, and makes a copy of another host's snapshot from
// fetched blobs. A copy has the files of the original: its layers are moved to the layers of this host, and its memory to
// its own folder. The files of its image stay among the blobs, and the copy and its machines name them there.
import { linkSync, rmSync } from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  type BlobFile,
  type CopyProgress,
  IMAGE_FILES,
  layerFileName,
  MEMORY_FILES,
  type SnapshotContent,
  type SnapshotManifest,
  type StoredPart,
  type UploadPart,
} from '@sandbar/contract/host-blobs.ts';
import type { MachineImage } from '../machines/record.ts';
import { memoryPlace } from '../snapshots/memory-files.ts';
import type { SnapshotRecord } from '../snapshots/snapshot-record.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { LayerStore } from '../storage/layers.ts';
import type { BlobStore } from './blob-store.ts';
import type { FileDigests } from './digests.ts';
import { digestsByName, imageOf, imagePaths, isImageFile } from './image-files.ts';
import { uploadPart } from './part-transfer.ts';

type Stores = {
  snapshots: SnapshotStore;
  layers: LayerStore;
  blobs: BlobStore;
  /** Returns the files of this host's own images, by their SHA-256. They need not be fetched. */
  imageFiles: () => Promise<ReadonlyMap<string, string>>;
  digests: FileDigests;
};

export class SnapshotTransfer {
  readonly #stores: Stores;

  constructor(stores: Stores) {
    this.#stores = stores;
  }

  /**
   * Describes a snapshot of this host and its files. Throws `not_found` when it is not here or not complete. The
   * manifest of a memory snapshot of an earlier version does not say what the memory needs.
   */
  async contentOf(id: string): Promise<SnapshotContent> {
    const record = this.#find(id);
    const files = await Promise.all(
      [...this.#pathsOf(id, record)].map(async ([name, path]): Promise<BlobFile> => {
        return { name, ...(await this.#stores.digests.of(path)) };
      }),
    );
    return { manifest: manifestOf(record), files };
  }

  /** Uploads one part of a snapshot's file. Throws `not_found`, and like {@link uploadPart}. */
  async upload(id: string, { name, index, url }: UploadPart): Promise<StoredPart> {
    const path = this.#pathsOf(id, this.#find(id)).get(name);
    if (path === undefined) throw new ServiceError('not_found', `snapshot ${id} has no file "${name}"`);
    return uploadPart(path, index, url);
  }

  /**
   * Makes the copy when all blobs are there; otherwise says which are missing and changes nothing. Does nothing when
   * this host has the snapshot. Throws `validation_error` when the files do not belong to the manifest, `conflict` when
   * a layer of this host has the same id and another content, and `fleet_capacity` on a full disk.
   */
  async addCopy(id: string, { manifest, files }: SnapshotContent): Promise<CopyProgress> {
    const { snapshots, layers, blobs, imageFiles } = this.#stores;
    const byName = filesByName(manifest, files);
    const own = await imageFiles();
    await this.#checkLayers(byName);
    // From here to the record nothing waits, so no garbage collection sees layers that no record names yet.
    if (snapshots.find(id)) {
      snapshots.noteUse(id);
      return { missing: [] };
    }
    const isOwn = (name: string, sha256: string) => isImageFile(name) && own.has(sha256);
    const isHere = (name: string, sha256: string) => this.#hasLayer(name) || isOwn(name, sha256) || blobs.has(sha256);
    const missing = [...byName].filter(([name, sha256]) => !isHere(name, sha256)).map(([, sha256]) => sha256);
    if (missing.length > 0) return { missing: [...new Set(missing)] };
    const pathOf = (sha256: string) => own.get(sha256) ?? blobs.pathOf(sha256);
    const image = imageOf(byName, pathOf, manifest.exec);
    const moved: string[] = [];
    // A link, because two layers with the same content are one blob.
    const linkTo = (name: string, path: string) => {
      const blob = blobs.pathOf(byName.get(name) ?? '');
      rmSync(path, { force: true });
      linkSync(blob, path);
      moved.push(blob);
      return path;
    };
    for (const layer of manifest.layers.filter((one) => !layers.has(one))) {
      layers.add(layer, linkTo(layerFileName(layer), blobs.linkPathOf(layer)));
    }
    snapshots.addCopy(id, recordOf(manifest, image), (dir) => {
      if (!manifest.memory) return;
      const place = memoryPlace(dir, manifest.memory.checks.bytes);
      linkTo('memory', place.memoryPath);
      linkTo('state', place.statePath);
    });
    for (const blob of moved) rmSync(blob, { force: true });
    return { missing: [] };
  }

  #find(id: string): SnapshotRecord {
    const record = this.#stores.snapshots.find(id);
    if (!record) throw new ServiceError('not_found', `snapshot ${id} is not on this host, or not whole any more`);
    return record;
  }

  /** Returns the files of a snapshot by their names. */
  #pathsOf(id: string, { image, layers, memory }: SnapshotRecord): Map<BlobFile['name'], string> {
    const paths = new Map<BlobFile['name'], string>(imagePaths(image));
    for (const layer of layers) paths.set(layerFileName(layer), this.#stores.layers.pathOf(layer));
    if (memory) {
      const { memoryPath, statePath } = this.#stores.snapshots.memoryPlaceOf(id, memory);
      paths.set('memory', memoryPath).set('state', statePath);
    }
    return paths;
  }

  /**
   * Checks the layers that are here already. Ids of layers are random, so another content means that the host which
   * published the snapshot is lying, perhaps to get at a disk of another account.
   */
  async #checkLayers(byName: ReadonlyMap<string, string>): Promise<void> {
    for (const [name, expected] of byName) {
      if (!this.#hasLayer(name)) continue;
      const { sha256 } = await this.#stores.digests.of(this.#stores.layers.pathOf(name.slice('layer/'.length)));
      if (sha256 !== expected) throw new ServiceError('conflict', `${name} of this host has another content`);
    }
  }

  #hasLayer(name: string): boolean {
    return name.startsWith('layer/') && this.#stores.layers.has(name.slice('layer/'.length));
  }
}

/** Returns what another host needs besides the files to use a snapshot. */
export function manifestOf({ image, memory, layers, ...record }: SnapshotRecord): SnapshotManifest {
  return {
    ...record,
    layers: [...layers],
    ...(image.exec === undefined ? {} : { exec: image.exec }),
    ...(memory?.needs ? { memory: { needs: memory.needs, checks: memory.checks } } : {}),
  };
}

/** Returns the record of a snapshot of another host. `image`: the files of its image on this host. */
export function recordOf({ exec: _, memory, ...manifest }: SnapshotManifest, image: MachineImage): SnapshotRecord {
  return { ...manifest, image, ...(memory ? { memory } : {}) };
}

function filesByName(manifest: SnapshotManifest, files: readonly BlobFile[]): Map<string, string> {
  if ((manifest.kind === 'memory') !== (manifest.memory !== undefined))
    throw new ServiceError('validation_error', 'the kind of the snapshot is not that of its files');
  const memory = manifest.memory ? MEMORY_FILES : [];
  return digestsByName([...IMAGE_FILES, ...memory, ...manifest.layers.map(layerFileName)], files);
}
