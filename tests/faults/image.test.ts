// Starts the service with files of an image missing.
import assert from 'node:assert/strict';
import { existsSync, renameSync, rmSync } from 'node:fs';
import { describe, it } from 'node:test';
import { imageFiles, start } from './support/service-process.ts';

describe('a start with missing image files', () => {
  it('builds a missing initramfs again, and says how to recover from a missing disk', async () => {
    const files = imageFiles();
    rmSync(files.initramfs);
    const mended = await start('image', {}, [], ['--setup-only']).ended;
    assert.equal(mended.code, 0, mended.output);
    assert.ok(existsSync(files.initramfs));

    renameSync(files.rootfs, `${files.rootfs}.away`);
    const told = await start('image', {}, [], ['--setup-only']).ended;
    renameSync(`${files.rootfs}.away`, files.rootfs);
    assert.equal(told.code, 1);
    assert.match(told.sentence, /^The disk .*rootfs\.img of an image is missing: restore it, or remove /);
  });
});
