import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { closeLog, lastLines, openLog, watchSize } from './log-file.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-log-'));
const file = path.join(folder, 'x.log');
after(() => rmSync(folder, { recursive: true }));

describe('log file', () => {
  it('a running writer goes on at the beginning after a rotation, and the old lines are kept once', async () => {
    const descriptor = openLog(file);
    writeSync(descriptor, 'old line\n'.repeat(20));
    const endWatch = watchSize(file, 100, 5);
    const deadline = performance.now() + 5_000;
    while (readFileSync(file).length > 0 && performance.now() < deadline) await new Promise((r) => setTimeout(r, 5));
    endWatch();
    writeSync(descriptor, 'new line\n');
    closeLog(descriptor);
    assert.equal(readFileSync(file, 'utf8'), 'new line\n');
    assert.equal(readFileSync(`${file}.1`, 'utf8'), 'old line\n'.repeat(20));
  });

  it('the last lines of a file', () => {
    appendFileSync(file, '1\n2\n3\n');
    assert.equal(lastLines(file, 2), '2\n3');
    assert.equal(lastLines(`${file}.absent`, 2), '');
  });
});
