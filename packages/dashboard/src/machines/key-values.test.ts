// Tests the conversion of rows of keys and values, and how an edit meets the changes of others.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { objectOf, rowsOf, withChanges } from './key-values.ts';

test('rows > values that are no text stay as they are', () => {
  const object = { team: 'web', tier: 2, tags: ['a'], owner: null };
  assert.deepEqual(objectOf(rowsOf(object)), object);
});

test('an edit > only what it changed is changed', () => {
  const opened = { team: 'web', tier: 2, tags: ['a'], old: 'x' };
  const rows = rowsOf(opened)
    .filter(({ key }) => key !== 'old')
    .map((row) => (row.key === 'team' ? { ...row, value: 'data' } : row));
  const current = { team: 'ops', tier: 3, old: 'x', added: 'by others' };
  assert.deepEqual(withChanges(current, opened, objectOf(rows)), { team: 'data', tier: 3, added: 'by others' });
});
