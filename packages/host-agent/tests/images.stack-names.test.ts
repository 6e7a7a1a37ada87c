// The control plane sends the name of the stack of a new machine to the host agent, which runs as root. No such name
// may lead the agent to a folder that the control plane's user can write, because a manifest there could name any file
// of the host as a disk.
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { findMachineImage } from '../src/images/machine-image.ts';

test('no name of a stack leads to a manifest outside of the images (ISO-8)', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'stack-names-'));
  try {
    const [cacheDir, planted] = [path.join(folder, 'cache'), path.join(folder, 'planted')];
    for (const made of [path.join(cacheDir, 'images', 'base'), path.join(planted, 'key')])
      await mkdir(made, { recursive: true });
    const secret = path.join(folder, 'secret');
    await writeFile(secret, 'of root');
    await symlink('key', path.join(planted, 'current'));
    const sha256 = 'a'.repeat(64);
    const manifest = {
      ...{
        stack: 'base',
        description: 'planted',
        digest: `sha256:${sha256}`,
        architecture: 'x86_64',
        min_rootfs_gb: 1,
      },
      ...{ default: false, created_at: '2026-01-02T03:04:05.000Z', rootfs: { path: secret, bytes: 7, format: 'raw' } },
      ...{ kernel: { path: secret, version: '6.12', sha256 }, initramfs: { path: secret, sha256 } },
    };
    await writeFile(path.join(planted, 'key', 'manifest.json'), JSON.stringify(manifest));
    for (const stack of ['../../planted', 'base/../../../planted', path.join('..', '..', 'planted'), '.', '..', '']) {
      const refused = { code: 'host_unavailable', message: /cannot be the name of an image/ };
      await assert.rejects(findMachineImage(cacheDir, stack), refused, stack);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
