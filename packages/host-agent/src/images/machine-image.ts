// Finds the image files for a new machine, with the errors that an API caller should see.
import { readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { MachineImage } from '../machines/record.ts';
import { ImageError } from './image-error.ts';
import { imagesFolder, type LoadedImage, listImages, loadImage } from './store.ts';

/** Builds that were already read and checked, by the path of their `current` link. A build never changes. */
type Checked = { target: string; image: MachineImage; manifestPath: string; rootfsBytes: number };
const checked = new Map<string, Checked>();

/** Returns the current build of a stack. Throws `host_unavailable` when it is missing or damaged on this host. */
export async function findMachineImage(cacheDir: string, stack: string): Promise<MachineImage> {
  const link = join(imagesFolder(cacheDir), stack, 'current');
  const known = checked.get(link);
  if (known && targetOf(link) === known.target && isThere(known)) return known.image;
  try {
    const { key, kernel, initramfs, rootfs, manifestPath, exec } = await loadImage(cacheDir, stack);
    const paths = { kernelPath: kernel.path, initramfsPath: initramfs.path, rootfsPath: rootfs.path };
    const image = exec === undefined ? paths : { ...paths, exec };
    checked.set(link, { target: key, image, manifestPath, rootfsBytes: rootfs.bytes });
    return image;
  } catch (error) {
    if (!(error instanceof ImageError)) throw error;
    throw new ServiceError('host_unavailable', `the host cannot use the image "${stack}": ${error.message}`, {
      retryAfterSec: 60,
      cause: error,
    });
  }
}

function targetOf(link: string): string | undefined {
  try {
    return readlinkSync(link);
  } catch {
    return undefined;
  }
}

/** Whether all files still exist and the disk has its full size; somebody may have deleted or truncated them. */
function isThere({ image, manifestPath, rootfsBytes }: Checked): boolean {
  const size = (path: string) => statSync(path, { throwIfNoEntry: false })?.size;
  const others = [manifestPath, image.kernelPath, image.initramfsPath];
  return size(image.rootfsPath) === rootfsBytes && others.every((path) => size(path) !== undefined);
}

/**
 * Returns the images of this host in the form of the public API. Calls `onDamaged` for an unusable image and leaves it
 * out.
 */
export async function describeImages(
  cacheDir: string,
  onDamaged: (error: ImageError, stack: string) => void,
): Promise<Image[]> {
  return (await listImages(cacheDir, onDamaged)).map(toPublicImage);
}

function toPublicImage(image: LoadedImage): Image {
  const { stack, description, digest, architecture, min_rootfs_gb, created_at } = image;
  return { stack, description, digest, architecture, min_rootfs_gb, default: image.default, created_at };
}
