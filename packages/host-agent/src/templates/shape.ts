// What makes two machines start from the same template, and how a template is named after it. Pure.
import { createHash } from 'node:crypto';
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine.ts';
import type { MachineImage } from '../machines/record.ts';

/** Changes with what a template's folder holds. */
const FORMAT = 3;

export type Shape = {
  image: MachineImage;
  /** What lies on the image below the disk, bottom to top; absolute paths, which name their content too. */
  layerPaths: readonly string[];
  vcpus: number;
  memoryMb: number;
  /** Of the template's disk; a machine's disk may be larger and grows while it runs. */
  diskGb: number;
};

/** Two sizes of disk are enough: it can only grow, and growing from the usual one costs nothing where it is the size. */
export function templateDiskGb(rootfsSizeGb: number, imageGb: number): number {
  // An image that was imported may be larger than the usual disk.
  return rootfsSizeGb >= MACHINE_DEFAULTS.rootfs_size_gb ? Math.max(MACHINE_DEFAULTS.rootfs_size_gb, imageGb) : imageGb;
}

/** 24 hex digits; `fingerprint` is the hypervisor's. The paths of an image's files name their content. */
export function templateKey(shape: Shape, fingerprint: string): string {
  const { image, layerPaths, vcpus, memoryMb, diskGb } = shape;
  const inputs = [
    FORMAT,
    fingerprint,
    image.kernelPath,
    image.initramfsPath,
    image.rootfsPath,
    layerPaths,
    vcpus,
    memoryMb,
    diskGb,
  ];
  return createHash('sha256').update(JSON.stringify(inputs)).digest('hex').slice(0, 24);
}
