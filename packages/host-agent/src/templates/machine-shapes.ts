// Says for which machines this host has templates, in the terms of the control plane, which prefers such hosts.
import { relative, sep } from 'node:path';
import type { MachineShape } from '@sandbar/contract/host-api.ts';
import type { Shape } from './shape.ts';

/**
 * Returns the shapes of machines that start as a clone of one of the templates, each once. `imagesDir`: the folder of
 * the images, in which each stack has a folder of its own. Leaves out bare templates and templates of snapshots, which
 * are of no use to other machines.
 */
export function machineShapes(templates: Iterable<Shape>, imagesDir: string): MachineShape[] {
  const shapes = new Map<string, MachineShape>();
  for (const { image, layerPaths, vcpus, memoryMb, isBare = false } of templates) {
    const [stack = '..'] = relative(imagesDir, image.rootfsPath).split(sep);
    if (isBare || layerPaths.length > 0 || stack === '..') continue;
    shapes.set(`${stack}/${vcpus}/${memoryMb}`, { stack, vcpus, memory_mb: memoryMb });
  }
  return [...shapes.values()];
}
