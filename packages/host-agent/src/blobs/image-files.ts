// The three files of an image as blobs: what they are called, and where they are on this host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type BlobFile, IMAGE_FILES, type ImageFile } from '@sandbar/contract/host-blobs.ts';
import { type ImageExec, isImageExec } from '../images/image-exec.ts';
import type { MachineImage } from '../machines/record.ts';

/** Returns the files of an image, by their names. */
export function imagePaths({ kernelPath, initramfsPath, rootfsPath }: MachineImage): Map<ImageFile, string> {
  return new Map<ImageFile, string>([
    ['kernel', kernelPath],
    ['initramfs', initramfsPath],
    ['rootfs', rootfsPath],
  ]);
}

/** Puts an image together. `pathOf`: the path of a file by its digest. Throws `validation_error`. */
export function imageOf(
  byName: ReadonlyMap<string, string>,
  pathOf: (sha256: string) => string,
  exec: unknown,
): MachineImage {
  const path = (name: ImageFile) => pathOf(byName.get(name) ?? '');
  const paths = { kernelPath: path('kernel'), initramfsPath: path('initramfs'), rootfsPath: path('rootfs') };
  if (exec === undefined) return paths;
  if (!isImageExec(exec)) throw new ServiceError('validation_error', 'the defaults of the image are not valid');
  return { ...paths, exec: exec as ImageExec };
}

/**
 * Returns the digests of files by their names. Throws `validation_error` unless these are exactly the files in
 * `wanted`.
 */
export function digestsByName(wanted: readonly string[], files: readonly BlobFile[]): Map<string, string> {
  const byName = new Map(files.map(({ name, sha256 }) => [name as string, sha256]));
  const isComplete = wanted.every((name) => byName.has(name));
  if (byName.size !== files.length || byName.size !== wanted.length || !isComplete)
    throw new ServiceError('validation_error', 'the files are not those of the snapshot or image');
  return byName;
}

export const isImageFile = (name: string): name is ImageFile => IMAGE_FILES.some((one) => one === name);
