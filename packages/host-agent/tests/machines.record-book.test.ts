// Tests which changes of a machine's record are written to its file.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { NEW_DISK, RECORD, readMachineRecord } from '../src/machines/record.ts';
import { RecordBook } from '../src/machines/record-book.ts';
import { SPEC } from './support/fake-host.ts';

describe('the record book of a machine', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-book-'));
  after(() => rmSync(dir, { recursive: true }));
  const book = new RecordBook(
    'machine',
    dir,
    {
      ...NEW_DISK,
      ...{ generation: 1, desired: 'running', spec: { ...SPEC, private_ip: '10.0.0.2' }, isAddressOpen: true },
      ...{ systemId: null, image: { kernelPath: '/k', initramfsPath: '/i', rootfsPath: '/r' }, volumes: [] },
      ...{ status: 'stopped', reason: null, bootId: 'boot' },
    },
    { warn: () => undefined },
  );
  /** A record that is written gets a new file. */
  const file = () => statSync(join(dir, RECORD)).ino;

  it('writes the first record, and later only what is new', () => {
    book.save({ generation: 1 });
    const first = file();
    book.save({ generation: 1, desired: 'running' });
    assert.equal(file(), first);
    book.save({ status: 'starting' });
    assert.notEqual(file(), first);
    assert.equal(readMachineRecord(dir)?.status, 'starting');
  });

  it('writes what is in memory only', () => {
    book.raiseGeneration(5);
    assert.equal(readMachineRecord(dir)?.generation, 1);
    book.save({ generation: 5 });
    assert.equal(readMachineRecord(dir)?.generation, 5);
  });
});
