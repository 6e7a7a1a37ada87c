// Tests that a text is cut only between two characters, even when the requested position is inside a character.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { asText, completeLength, continuationBytes } from './text-part.ts';

const TEXT = 'aß€😀z';
const BYTES = Buffer.from(TEXT);

describe('a cut at any byte', () => {
  it('is moved to the end of a character, and the next part begins there', () => {
    for (let cut = 0; cut <= BYTES.length; cut++) {
      const end = completeLength(BYTES.subarray(0, cut));
      assert.ok(cut - end < 4, `cut at ${cut}`);
      const [first, second] = [asText(BYTES.subarray(0, end)), asText(BYTES.subarray(end))];
      assert.equal(`${first}${second}`, TEXT, `cut at ${cut}`);
    }
  });

  it('is moved to the beginning of a character when a part would begin inside a character', () => {
    for (let cut = 0; cut <= BYTES.length; cut++) {
      const rest = BYTES.subarray(cut);
      assert.ok(TEXT.endsWith(asText(rest.subarray(continuationBytes(rest))) ?? '-'), `cut at ${cut}`);
    }
  });
});

describe('bytes that are not text', () => {
  it('are not cut, and are not returned as text', () => {
    const bytes = Buffer.from([0x80, 0x80, 0x80, 0x80, 0x80]);
    assert.deepEqual([completeLength(bytes), continuationBytes(bytes), asText(bytes)], [5, 0, undefined]);
    assert.equal(asText(Buffer.from('a\0b')), undefined);
  });
});
