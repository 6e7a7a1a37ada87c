// Defines which machines can start from the same template, and derives the template's name from that. Pure functions.
import { createHash } from 'node:crypto';
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import type { MachineImage } from '../machines/record.ts';

/** Increase this number when the content of a template's folder changes. */
const FORMAT = 4;
/** Size in GiB of the placeholder disk with which a bare template is made. No clone gets this disk. */
const PLACEHOLDER_GB = 1;

export type Shape = {
  image: MachineImage;
  /** The layers between image and disk, bottom first. Absolute paths; the file at a path never changes. */
  layerPaths: readonly string[];
  vcpus: number;
  memoryMb: number;
  /** Size of the template's disk in GiB. A machine's disk may be larger; it is then grown while the machine runs. */
  diskGb: number;
  /**
   * True for a bare template, which was saved before the guest mounted its root disk. Its clones can have any disk.
   * Only the kernel and initramfs of the image matter, and the size of the disk does not.
   */
  isBare?: boolean;
};

/** Returns the shape of the bare template for machines of this shape. */
export function bareShapeOf({ image, vcpus, memoryMb }: Shape): Shape {
  return { image, layerPaths: [], vcpus, memoryMb, diskGb: PLACEHOLDER_GB, isBare: true };
}

/**
 * Returns the size of a template's disk in GiB: the default size, or the image's for smaller machines. Two sizes
 * suffice, because a clone's disk can be grown, and machines of the default size need no growing.
 */
export function templateDiskGb(rootfsSizeGb: number, imageGb: number): number {
  // An imported image may be larger than the default disk.
  return rootfsSizeGb >= MACHINE_DEFAULTS.rootfs_size_gb ? Math.max(MACHINE_DEFAULTS.rootfs_size_gb, imageGb) : imageGb;
}

/**
 * Returns the key of a shape's template, 24 hex digits. `fingerprint`: {@link Hypervisor.fingerprint}. The key contains
 * file paths instead of hashes, because the files at these paths never change.
 */
export function templateKey(shape: Shape, fingerprint: string): string {
  const { image, layerPaths, vcpus, memoryMb, diskGb, isBare } = shape;
  const disk = isBare ? ['bare'] : [image.rootfsPath, layerPaths, diskGb];
  const inputs = [FORMAT, fingerprint, image.kernelPath, image.initramfsPath, vcpus, memoryMb, ...disk];
  return createHash('sha256').update(JSON.stringify(inputs)).digest('hex').slice(0, 24);
}
