// Picks the files of an image for a machine, with the errors a caller of the API should see.
import { readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { MachineImage } from '../machines/record.ts';
import { ImageError } from './image-error.ts';
import { imagesFolder, type LoadedImage, listImages, loadImage } from './store.ts';

/** Builds that were read and checked, by the link that named them; a build never changes. */
type Checked = { target: string; image: MachineImage; manifestPath: string; rootfsBytes: number };
const checked = new Map<string, Checked>();

/** The current build of a stack. Throws `host_unavailable` when it is missing or damaged on this host. */
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

/** Whether somebody deleted or cut one of the files since. */
function isThere({ image, manifestPath, rootfsBytes }: Checked): boolean {
  const size = (path: string) => statSync(path, { throwIfNoEntry: false })?.size;
  const others = [manifestPath, image.kernelPath, image.initramfsPath];
  return size(image.rootfsPath) === rootfsBytes && others.every((path) => size(path) !== undefined);
}

/** The images of this host in their public shape; one that cannot be used is told and left out. */
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
