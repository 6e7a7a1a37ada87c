import assert from 'node:assert/strict';
import { cp, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { ImageError } from './image-error.ts';
import { type ImageManifest, listImages, loadImage, parseManifest } from './store.ts';

const MANIFEST: ImageManifest = {
  stack: 'base',
  description: 'A test',
  digest: `sha256:${'a'.repeat(64)}`,
  architecture: 'x86_64',
  min_rootfs_gb: 2,
  default: true,
  created_at: '2026-01-02T03:04:05.000Z',
  kernel: { path: '../../../kernel/vmlinux', version: '6.12', sha256: 'b'.repeat(64) },
  initramfs: { path: '../../../initramfs.cpio', sha256: 'c'.repeat(64) },
  rootfs: { path: '../../../rootfs.img', bytes: 4096, format: 'raw' },
};

describe('manifest', () => {
  test('a complete manifest is accepted', () => {
    assert.deepEqual(parseManifest(JSON.stringify(MANIFEST), 'manifest.json'), MANIFEST);
  });

  const damaged: Record<string, unknown> = {
    'no kernel': { ...MANIFEST, kernel: undefined },
    'a kernel without a path': { ...MANIFEST, kernel: { ...MANIFEST.kernel, path: '' } },
    'a digest of another kind': { ...MANIFEST, digest: 'md5:aa' },
    'a size that is a text': { ...MANIFEST, rootfs: { ...MANIFEST.rootfs, bytes: '4096' } },
    'a disk of another format': { ...MANIFEST, rootfs: { ...MANIFEST.rootfs, format: 'qcow2' } },
    'a date that is none': { ...MANIFEST, created_at: 'yesterday' },
    null: null,
  };
  for (const [name, value] of Object.entries(damaged)) {
    test(`${name} is an error that names the file and what to do`, () => {
      const says = /manifest .*some\/manifest\.json is damaged .*; run npm start again/;
      assert.throws(() => parseManifest(JSON.stringify(value), 'some/manifest.json'), says);
    });
  }

  test('a truncated manifest is an error', () => {
    assert.throws(() => parseManifest('{"stack":', 'm.json'), { name: 'ImageError', message: /m\.json .*not JSON/ });
  });
});

const neverDamaged = (error: ImageError) => {
  throw error;
};

describe('store', () => {
  let cacheDir: string;
  before(async () => {
    cacheDir = await mkdtemp(path.join(tmpdir(), 'image-store-'));
  });
  after(() => rm(cacheDir, { recursive: true }));
  beforeEach(async () => {
    await rm(cacheDir, { recursive: true });
    const build = path.join(cacheDir, 'images', 'base', 'key1');
    await mkdir(build, { recursive: true });
    await mkdir(path.join(cacheDir, 'kernel'));
    await writeFile(path.join(build, 'manifest.json'), JSON.stringify(MANIFEST));
    await writeFile(path.join(cacheDir, 'kernel', 'vmlinux'), '');
    await writeFile(path.join(cacheDir, 'initramfs.cpio'), '');
    await writeFile(path.join(cacheDir, 'rootfs.img'), Buffer.alloc(4096));
    await symlink('key1', path.join(cacheDir, 'images', 'base', 'current'));
  });

  test('the current build has absolute paths and its key', async () => {
    const image = await loadImage(cacheDir, 'base');
    assert.equal(image.key, 'key1');
    assert.equal(image.kernel.path, path.join(cacheDir, 'kernel', 'vmlinux'));
    assert.equal(image.rootfs.path, path.join(cacheDir, 'rootfs.img'));
    assert.deepEqual(await listImages(cacheDir, neverDamaged), [image]);
  });

  test('a stack that was never built is an error, and no stacks are an empty list', async () => {
    await assert.rejects(loadImage(cacheDir, 'other'), /no image "other" in .*; run npm start again/);
    assert.deepEqual(await listImages(path.join(cacheDir, 'nowhere'), neverDamaged), []);
  });

  test('the error for a missing manifest, kernel or disk names it', async () => {
    await rm(path.join(cacheDir, 'kernel', 'vmlinux'));
    await assert.rejects(loadImage(cacheDir, 'base'), /lacks .*kernel\/vmlinux/);
    await rm(path.join(cacheDir, 'images', 'base', 'key1', 'manifest.json'));
    await assert.rejects(
      loadImage(cacheDir, 'base'),
      (error) => error instanceof ImageError && /is missing/.test(error.message),
    );
  });

  test('the other stacks are listed next to a damaged one and one in its first build', async () => {
    await cp(path.join(cacheDir, 'images', 'base'), path.join(cacheDir, 'images', 'python'), {
      recursive: true,
      verbatimSymlinks: true,
    });
    await writeFile(path.join(cacheDir, 'images', 'base', 'key1', 'manifest.json'), 'none');
    await mkdir(path.join(cacheDir, 'images', 'node', '.tmp-1'), { recursive: true });
    const damaged: string[] = [];
    const images = await listImages(cacheDir, (_error, stack) => damaged.push(stack));
    assert.deepEqual([images.map(({ key }) => key), damaged], [['key1'], ['base']]);
  });

  test('a truncated disk is an error', async () => {
    await truncate(path.join(cacheDir, 'rootfs.img'), 1000);
    await assert.rejects(loadImage(cacheDir, 'base'), /has 1000 bytes instead of 4096/);
  });
});
