// Tests what a host says about its templates to the control plane.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { machineShapes } from '../src/templates/machine-shapes.ts';
import type { Shape } from '../src/templates/shape.ts';

const shapeOf = (rootfsPath: string, facts: Partial<Shape> = {}): Shape => ({
  image: { kernelPath: '/k', initramfsPath: '/i', rootfsPath },
  ...{ layerPaths: [], vcpus: 1, memoryMb: 1024, diskGb: 10 },
  ...facts,
});

describe('the templates that a host reports', () => {
  it('are those of images, each shape once', () => {
    const shapes = [
      shapeOf('/cache/images/base/k1/rootfs.raw'),
      shapeOf('/cache/images/base/k1/rootfs.raw', { diskGb: 2 }),
      shapeOf('/cache/images/node/k2/rootfs.raw', { vcpus: 2, memoryMb: 2048 }),
    ];
    assert.deepEqual(machineShapes(shapes, '/cache/images'), [
      { stack: 'base', vcpus: 1, memory_mb: 1024 },
      { stack: 'node', vcpus: 2, memory_mb: 2048 },
    ]);
  });

  it('are neither bare, nor of a snapshot, nor of a file elsewhere', () => {
    const path = '/cache/images/base/k1/rootfs.raw';
    const shapes = [
      shapeOf(path, { isBare: true }),
      shapeOf(path, { layerPaths: ['/layers/1'] }),
      shapeOf('/elsewhere/rootfs.raw'),
    ];
    assert.deepEqual(machineShapes(shapes, '/cache/images'), []);
  });
});
