import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import zlib from 'node:zlib';
import { extractVmlinux } from './vmlinux.ts';

const ELF = Buffer.from(`\x7fELF${'kernel '.repeat(500)}`, 'latin1');

/** A bzImage as far as its header goes: two set-up sectors, then 100 bytes of code before the payload. */
function bzImageWith(payload: Buffer): Buffer {
  const head = Buffer.alloc(3 * 512 + 100);
  head.writeUInt8(2, 0x1f1);
  head.write('HdrS', 0x202);
  head.writeUInt32LE(100, 0x248);
  head.writeUInt32LE(payload.length, 0x24c);
  return Buffer.concat([head, payload, Buffer.alloc(300)]);
}

describe('vmlinux', () => {
  const size = Buffer.alloc(4);

  test('comes out of a payload of zstd', async () => {
    const payload = Buffer.concat([zlib.zstdCompressSync(ELF), size]);
    assert.deepEqual(await extractVmlinux(bzImageWith(payload)), ELF);
  });

  test('comes out of a payload of gzip', async () => {
    assert.deepEqual(await extractVmlinux(bzImageWith(zlib.gzipSync(ELF))), ELF);
  });

  test('a payload of another kind, or one that is not ELF, gives nothing', async () => {
    assert.equal(await extractVmlinux(bzImageWith(Buffer.from('LZO payload'))), undefined);
    assert.equal(await extractVmlinux(bzImageWith(zlib.gzipSync('text'))), undefined);
    assert.equal(await extractVmlinux(Buffer.alloc(4096)), undefined);
  });
});
