import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import zlib from 'node:zlib';
import { extractVmlinux } from './vmlinux.ts';

const ELF = Buffer.from(`\x7fELF${'kernel '.repeat(500)}`, 'latin1');

/** Returns a bzImage with only a header, two set-up sectors, 100 bytes of code and then the payload. */
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

  test('is extracted from a zstd payload', async () => {
    const payload = Buffer.concat([zlib.zstdCompressSync(ELF), size]);
    assert.deepEqual(await extractVmlinux(bzImageWith(payload)), ELF);
  });

  test('is extracted from a gzip payload', async () => {
    assert.deepEqual(await extractVmlinux(bzImageWith(zlib.gzipSync(ELF))), ELF);
  });

  test('is undefined for another compression, or when the payload is not ELF', async () => {
    assert.equal(await extractVmlinux(bzImageWith(Buffer.from('LZO payload'))), undefined);
    assert.equal(await extractVmlinux(bzImageWith(zlib.gzipSync('text'))), undefined);
    assert.equal(await extractVmlinux(Buffer.alloc(4096)), undefined);
  });
});
