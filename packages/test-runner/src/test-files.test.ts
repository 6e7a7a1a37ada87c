import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { BUSY_FILES, groupTestFiles, selectTestFiles, WAITING_FILES } from './test-files.ts';

describe('the test files', () => {
  const checkout = mkdtempSync(path.join(tmpdir(), 'test-files-'));
  after(() => rmSync(checkout, { recursive: true }));
  const files = [
    'packages/a/src/x.test.ts',
    'packages/a/tests/y.test.ts',
    'tests/browser/b.test.ts',
    'tests/browser/outages/o.test.ts',
    'tests/clients/s.test.ts',
    'tests/conformance/c.test.ts',
    'tests/e2e/e.test.ts',
    'tests/e2e/together/t.test.ts',
    'tests/faults/f.test.ts',
  ];
  const long = 'tests/deploy/d.long.test.ts';
  for (const file of [
    ...files,
    long,
    'packages/a/node_modules/b/z.test.ts',
    'packages/a/src/x.ts',
    'bench/b.test.ts',
  ]) {
    mkdirSync(path.join(checkout, path.dirname(file)), { recursive: true });
    writeFileSync(path.join(checkout, file), '');
  }

  it('are all test files below packages/ and tests/, except those of dependencies and long ones', () => {
    assert.deepEqual(selectTestFiles(checkout, []), files);
  });

  it('are chosen by parts of their paths', () => {
    assert.deepEqual(selectTestFiles(checkout, ['./packages/a/src', 'e2e']), [files[0], files[6], files[7]]);
    assert.deepEqual(selectTestFiles(checkout, ['tests/deploy']), [long]);
    assert.deepEqual(selectTestFiles(checkout, ['nothing']), []);
  });

  it('run in groups: those that kill processes one at a time, conformance last', () => {
    assert.deepEqual(
      groupTestFiles(files).map(({ name, files: group, filesAtOnce }) => [name, group.length, filesAtOnce]),
      [
        ['node tests', 3, WAITING_FILES],
        ['end-to-end tests', 1, 1],
        ['end-to-end tests that share the service', 1, BUSY_FILES],
        ['client tests', 1, BUSY_FILES],
        ['browser tests', 1, BUSY_FILES],
        ['browser tests with outages', 1, 1],
        ['conformance tests', 1, 1],
      ],
    );
    assert.deepEqual(
      groupTestFiles(['tests/e2e/e.test.ts']).map(({ name }) => name),
      ['end-to-end tests'],
    );
  });
});
