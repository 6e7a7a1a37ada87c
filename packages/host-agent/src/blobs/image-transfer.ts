// Gives the files of an image of this host to the object store, and keeps images of other hosts that machines here are
// made from. Such an image is a record that names its files among the blobs. This host's own image of the same name
// comes first, and no list of images has the others.
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  type BlobFile,
  type CopyProgress,
  IMAGE_FILES,
  type ImageContent,
  type StoredPart,
  type UploadPart,
} from '@sandbar/contract/host-blobs.ts';
import { findMachineImage } from '../images/machine-image.ts';
import { isStackName, loadImage } from '../images/store.ts';
import type { MachineImage } from '../machines/record.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';
import type { BlobStore } from './blob-store.ts';
import type { FileDigests } from './digests.ts';
import { digestsByName, imageOf, imagePaths, isImageFile } from './image-files.ts';
import { uploadPart } from './part-transfer.ts';

export type ImageTransferOptions = {
  cacheDir: string;
  copiesDir: string;
  blobs: BlobStore;
  digests: FileDigests;
  imageFiles: () => Promise<ReadonlyMap<string, string>>;
};

export class ImageTransfer {
  readonly #options: ImageTransferOptions;

  constructor(options: ImageTransferOptions) {
    this.#options = options;
    mkdirSync(options.copiesDir, { recursive: true, mode: 0o700 });
  }

  /** Describes the current image of a stack and its files. Throws `host_unavailable` when this host has none. */
  async contentOf(stack: string): Promise<ImageContent> {
    const image = await this.#ownImage(stack);
    const { digest, created_at } = await loadImage(this.#options.cacheDir, stack);
    const files = await Promise.all(
      [...imagePaths(image)].map(
        async ([name, path]): Promise<BlobFile> => ({ name, ...(await this.#options.digests.of(path)) }),
      ),
    );
    return { manifest: { digest, created_at, ...(image.exec === undefined ? {} : { exec: image.exec }) }, files };
  }

  /** Uploads one part of a file of the current image of a stack. Throws like {@link uploadPart}. */
  async upload(stack: string, { name, index, url }: UploadPart): Promise<StoredPart> {
    const path = isImageFile(name) ? imagePaths(await this.#ownImage(stack)).get(name) : undefined;
    if (path === undefined) throw new ServiceError('not_found', `an image has no file "${name}"`);
    return uploadPart(path, index, url);
  }

  /**
   * Makes machines of this stack possible when all files are here; otherwise says which are missing and changes
   * nothing. Replaces an earlier image of the stack. Throws `validation_error` and `fleet_capacity`.
   */
  async addCopy(stack: string, { manifest, files }: ImageContent): Promise<CopyProgress> {
    const { blobs, imageFiles } = this.#options;
    refuseName(stack);
    const byName = digestsByName(IMAGE_FILES, files);
    const own = await imageFiles();
    const missing = [...byName.values()].filter((sha256) => !own.has(sha256) && !blobs.has(sha256));
    if (missing.length > 0) return { missing: [...new Set(missing)] };
    const image = imageOf(byName, (sha256) => own.get(sha256) ?? blobs.pathOf(sha256), manifest.exec);
    writeRecordDurably(this.#recordPath(stack), image);
    return { missing: [] };
  }

  /** Returns the image for a new machine: this host's own, else one of another host. Throws `host_unavailable`. */
  async find(stack: string): Promise<MachineImage> {
    try {
      return await findMachineImage(this.#options.cacheDir, stack);
    } catch (error) {
      const copy = isStackName(stack) ? readRecord<MachineImage>(this.#recordPath(stack)) : undefined;
      if (copy && [...imagePaths(copy).values()].every((path) => existsSync(path))) return copy;
      throw error;
    }
  }

  /** Returns the images of other hosts. Throws when a record cannot be read. */
  copies(): MachineImage[] {
    return readdirSync(this.#options.copiesDir).flatMap(
      (name) => readRecord<MachineImage>(join(this.#options.copiesDir, name)) ?? [],
    );
  }

  /** Removes the images of other hosts that nobody has asked for in the last `ageMs`, and returns their names. */
  removeOldCopies(ageMs: number): string[] {
    const { copiesDir } = this.#options;
    const old = readdirSync(copiesDir).filter((name) => statSync(join(copiesDir, name)).mtimeMs < Date.now() - ageMs);
    for (const name of old) rmSync(join(copiesDir, name), { force: true });
    return old;
  }

  async #ownImage(stack: string): Promise<MachineImage> {
    refuseName(stack);
    return findMachineImage(this.#options.cacheDir, stack);
  }

  #recordPath(stack: string): string {
    return join(this.#options.copiesDir, `${stack}.json`);
  }
}

function refuseName(stack: string): void {
  if (!isStackName(stack)) throw new ServiceError('validation_error', `"${stack}" cannot be the name of an image`);
}
