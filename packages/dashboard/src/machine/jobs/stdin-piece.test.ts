// Tests which bytes are sent again to the stdin of a job.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { restOf, retryOffset } from './stdin-piece.ts';

const piece = { text: 'a€b\n', offset: 10, close: false };

test('stdin > the rest begins with a whole character, at the offset of its first byte', () => {
  assert.deepEqual(restOf(piece, 10), piece);
  for (const next of [11, 12, 13]) assert.deepEqual(restOf(piece, next), { ...piece, text: '€b\n', offset: 11 });
  assert.deepEqual(restOf(piece, 14), { ...piece, text: 'b\n', offset: 14 });
  assert.equal(restOf(piece, 16), undefined);
});

test('stdin > the same text is sent again at the same offset, and another text is not', () => {
  assert.equal(retryOffset(piece, 'a€b\n'), 10);
  assert.equal(retryOffset(piece, 'a€b'), 10);
  assert.equal(retryOffset(piece, 'other\n'), undefined);
});
