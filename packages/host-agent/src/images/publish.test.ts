import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { writeCache } from '../../tests/support/image-cache.ts';
import { hashFile } from './cache.ts';
import { findMachineImage } from './machine-image.ts';
import { publishImage, renewAgent } from './publish.ts';
import { loadImage } from './store.ts';
import { watchImages } from './watch.ts';

const quiet = { wasBuilt: false, log: () => {} };

let cacheDir: string;
beforeEach(async () => {
  cacheDir = await mkdtemp(path.join(tmpdir(), 'image-publish-'));
  await writeCache(cacheDir);
});
afterEach(() => rm(cacheDir, { recursive: true }));

const nameless = async () => {
  const { key: _, manifestPath: __, architecture: ___, created_at: ____, ...image } = await loadImage(cacheDir, 'base');
  return image;
};

describe('a published image', () => {
  test('becomes current and is read with absolute paths; publishing it again makes no new build', async () => {
    const base = await nameless();
    const exec = { env: { A: 'b' }, user: null, cwd: '/srv', entrypoint: [] };
    const { image } = await publishImage(cacheDir, { ...base, stack: 'other', default: false, exec }, quiet);
    assert.equal(await readlink(path.join(cacheDir, 'images', 'other', 'current')), image.key);
    assert.equal(image.rootfs.path, base.rootfs.path);
    const again = await publishImage(cacheDir, { ...base, stack: 'other', default: false, exec }, quiet);
    assert.deepEqual([again.image.key, again.wasBuilt], [image.key, false]);
    assert.deepEqual((await findMachineImage(cacheDir, 'other')).exec, exec);
  });

  test('is noticed by a running agent at once, without its timer', { timeout: 30_000 }, async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const base = await nameless();
    const warnings: unknown[] = [];
    const log = { warn: (details: unknown) => void warnings.push(details) };
    const events = new EventEmitter<{ read: [] }>();
    const watch = await watchImages(cacheDir, log, () => events.emit('read'));
    const described = async (...wanted: string[]) => {
      const isTold = () =>
        watch
          .current()
          .map(({ description }) => description)
          .join() === wanted.join();
      while (!isTold()) await once(events, 'read');
    };
    try {
      await described('A base');
      await publishImage(cacheDir, { ...base, stack: 'other', default: false }, quiet);
      await described('A base', 'A base');
      await publishImage(cacheDir, { ...base, stack: 'other', default: false, description: 'Anew' }, quiet);
      await described('A base', 'Anew');
      assert.deepEqual(warnings, []);
    } finally {
      watch.close();
    }
  });
});

describe('a new guest agent', () => {
  const agentOf = async (content: string) => {
    const file = path.join(cacheDir, `agent-${content}`);
    await writeFile(file, content);
    return { key: await hashFile(file), path: file };
  };

  test('replaces the old one in every stack, keeps all disks and skips a damaged stack', async () => {
    const base = await nameless();
    await publishImage(cacheDir, { ...base, stack: 'other', default: false }, quiet);
    await mkdir(path.join(cacheDir, 'images', 'broken', 'k'), { recursive: true });
    await publishImage(cacheDir, { ...base, stack: 'broken', default: false }, quiet);
    const broken = await loadImage(cacheDir, 'broken');
    await writeFile(broken.manifestPath, 'none');

    const lines: string[] = [];
    const log = (line: string) => void lines.push(line);
    await renewAgent(cacheDir, await agentOf('new'), [], log);
    const [first, second] = await Promise.all([loadImage(cacheDir, 'base'), loadImage(cacheDir, 'other')]);
    assert.notEqual(first.initramfs.path, base.initramfs.path);
    assert.equal(second.initramfs.path, first.initramfs.path);
    assert.deepEqual(second.rootfs, base.rootfs);
    assert.ok(
      lines.some((line) => /image broken keeps its old guest agent/.test(line)),
      lines.join('\n'),
    );

    const { key } = second;
    await renewAgent(cacheDir, await agentOf('new'), [], log);
    assert.equal((await loadImage(cacheDir, 'other')).key, key);
  });
});
