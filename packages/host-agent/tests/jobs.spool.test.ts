// Tests the spool: absolute offsets, no gaps, a size limit, and pages with the exact bytes.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { JobSpool, readSpool } from '../src/jobs/spool.ts';

describe('job spool', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-spool-'));
  after(() => rmSync(dir, { recursive: true }));

  it('no byte is written twice, and gaps and excess data are refused (RES-6)', async () => {
    const spool = await JobSpool.open(dir, 16);
    await spool.write('stdout', 0, Buffer.from('hello '));
    await assert.rejects(spool.write('stdout', 0, Buffer.from('hello ')), GuestProtocolError);
    await assert.rejects(spool.write('stdout', 2, Buffer.from('llo world')), GuestProtocolError);
    await spool.write('stdout', 6, Buffer.from('world'));
    assert.equal(spool.sizes.stdout, 11);
    await assert.rejects(spool.write('stdout', 12, Buffer.from('x')), GuestProtocolError);
    await assert.rejects(spool.write('stdout', 11, Buffer.alloc(6)), GuestProtocolError);
    await spool.close();

    const again = await JobSpool.open(dir, 16);
    assert.deepEqual(again.sizes, { stdout: 11, stderr: 0 });
    await again.write('stdout', 11, Buffer.from('!'));
    await again.close();
    assert.equal((await readSpool(dir, 'stdout', 0, 100, 12)).toString(), 'hello world!');
    assert.equal((await readSpool(dir, 'stdout', 6, 3, 12)).toString(), 'wor');
    assert.equal((await readSpool(dir, 'stdout', 50, 3, 12)).length, 0);
  });
});
