// Picks the files of an image for a machine, with the errors a caller of the API should see.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { MachineImage } from '../machines/record.ts';
import { ImageError } from './image-error.ts';
import { type LoadedImage, listImages, loadImage } from './store.ts';

/** The current build of a stack. Throws `host_unavailable` when it is missing or damaged on this host. */
export async function findMachineImage(cacheDir: string, stack: string): Promise<MachineImage> {
  try {
    const image = await loadImage(cacheDir, stack);
    return { kernelPath: image.kernel.path, initramfsPath: image.initramfs.path, rootfsPath: image.rootfs.path };
  } catch (error) {
    if (!(error instanceof ImageError)) throw error;
    throw new ServiceError('host_unavailable', `the host cannot use the image "${stack}": ${error.message}`, {
      retryAfterSec: 60,
      cause: error,
    });
  }
}

/** The images of this host in their public shape. */
export async function describeImages(cacheDir: string): Promise<Image[]> {
  return (await listImages(cacheDir)).map(toPublicImage);
}

function toPublicImage(image: LoadedImage): Image {
  const { stack, description, digest, architecture, min_rootfs_gb, created_at } = image;
  return { stack, description, digest, architecture, min_rootfs_gb, default: image.default, created_at };
}
