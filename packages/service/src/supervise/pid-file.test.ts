import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { claimPidFile, readPidFile, writePidFile } from './pid-file.ts';
import { isAlive } from './process-identity.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-pid-'));
const file = path.join(folder, 'x.pid');
after(() => rmSync(folder, { recursive: true }));

describe('pid file', () => {
  it('has the bare id on its first line and knows the process by its start time', () => {
    writePidFile(file, process.pid);
    assert.equal(readFileSync(file, 'utf8').split('\n')[0], String(process.pid));
    const identity = readPidFile(file);
    assert.ok(identity !== undefined && isAlive(identity));
    assert.equal(isAlive({ ...identity, startTime: '1' }), false);
  });

  it('a claim fails while the holder lives', () => {
    writePidFile(file, process.ppid);
    assert.equal(claimPidFile(file)?.pid, process.ppid);
    assert.equal(readPidFile(file)?.pid, process.ppid);
  });

  it('a claim takes a file over whose process is gone, was another, or that is garbage, and leaves no other file', () => {
    for (const stale of ['999999999\n1\n', `${process.ppid}\n1\n`, 'garbage', '']) {
      writeFileSync(file, stale);
      assert.equal(claimPidFile(file), undefined);
      assert.equal(readPidFile(file)?.pid, process.pid);
    }
    assert.deepEqual(readdirSync(folder), ['x.pid']);
  });
});
