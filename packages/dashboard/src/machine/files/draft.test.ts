// Tests what becomes of a draft when its file is saved and read again.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { draftAfterRead, isUnread, isUnsaved } from './draft.ts';
import type { TextContent } from './read-content.ts';

const version = (etag: string, lines: string): TextContent => ({ kind: 'text', etag, lines, lineEnd: '\n' });
const base = version('1', 'old');

test('draft > a draft stays when another program changes the file', () => {
  const draft = { lines: 'mine', base };
  assert.equal(draftAfterRead(draft, version('2', 'theirs')), draft);
});

test('draft > a saved draft stays until the file was read again, and is not unsaved', () => {
  const draft = { lines: 'mine', base, saved: 'mine' };
  assert.equal(draftAfterRead(draft, base), draft);
  assert.deepEqual([isUnread(draft, base), isUnsaved(draft)], [true, false]);
  assert.equal(draftAfterRead(draft, version('2', 'mine')), undefined);
  assert.equal(draftAfterRead(draft, version('2', 'theirs')), undefined);
});

test('draft > what was typed during the save is based on the saved version only', () => {
  const draft = { lines: 'mine and more', base, saved: 'mine' };
  assert.equal(isUnsaved(draft), true);
  const saved = version('2', 'mine');
  assert.deepEqual(draftAfterRead(draft, saved), { lines: 'mine and more', base: saved });
  assert.deepEqual(draftAfterRead(draft, version('2', 'theirs')), { lines: 'mine and more', base });
});
