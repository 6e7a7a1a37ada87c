import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { moduleName, orderModules, parseModuleIndex } from './module-order.ts';

const index = parseModuleIndex({
  dep: [
    'kernel/drivers/scsi/sd_mod.ko.xz: kernel/drivers/scsi/scsi_mod.ko.xz kernel/drivers/scsi/scsi_common.ko.xz',
    'kernel/drivers/scsi/scsi_mod.ko.xz: kernel/drivers/scsi/scsi_common.ko.xz',
    'kernel/drivers/scsi/scsi_common.ko.xz:',
    'kernel/drivers/char/virtio-rng.ko.xz:',
    'kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko',
    'kernel/fs/jbd2/jbd2.ko:',
    'kernel/fs/mbcache.ko:',
    'kernel/crypto/crc32c_generic.ko:',
    'kernel/a.ko: kernel/b.ko',
    'kernel/b.ko:',
  ].join('\n'),
  builtin: 'kernel/drivers/char/virtio_console.ko\n',
  softdep: '# Soft dependencies\nsoftdep ext4 pre: crc32c post: a\nsoftdep a pre: nowhere\nsoftdep b pre: a\n',
  alias: 'alias crypto-crc32c crc32c_generic\nalias virtio:d00000002v* virtio_blk\n',
});

describe('module order', () => {
  test('a module comes after everything it needs, and only once', () => {
    assert.deepEqual(orderModules(index, ['sd_mod', 'scsi_mod']).map(moduleName), [
      'scsi_common',
      'scsi_mod',
      'sd_mod',
    ]);
  });

  test('a soft dependency is found through its alias and comes first', () => {
    assert.deepEqual(orderModules(index, ['ext4']).map(moduleName), ['crc32c_generic', 'mbcache', 'jbd2', 'ext4']);
  });

  test('the order of the roots is kept', () => {
    assert.deepEqual(orderModules(index, ['virtio_rng', 'mbcache']).map(moduleName), ['virtio_rng', 'mbcache']);
  });

  test('a module compiled into the kernel needs no file', () => {
    assert.deepEqual(orderModules(index, ['virtio_console']), []);
  });

  test('dashes and underscores in names are equal', () => {
    assert.deepEqual(orderModules(index, ['virtio-rng']), ['kernel/drivers/char/virtio-rng.ko.xz']);
  });

  test('a soft dependency that is missing or circular is skipped', () => {
    assert.deepEqual(orderModules(index, ['a']).map(moduleName), ['b', 'a']);
  });

  test('a root module that does not exist is an error', () => {
    assert.throws(() => orderModules(index, ['virtio_gone']), /no module virtio_gone/);
  });
});
