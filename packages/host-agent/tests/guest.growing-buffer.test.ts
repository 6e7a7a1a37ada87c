// Tests that bytes which arrive one by one are neither copied again and again nor take much more memory than they have.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { GrowingBuffer } from '../src/guest/growing-buffer.ts';

it('a mebibyte that arrives byte by byte is moved 20 times at most, and takes at most twice its size (ISO-10)', () => {
  const buffer = new GrowingBuffer();
  const memories = new Set<ArrayBufferLike>();
  for (let at = 0; at < 2 ** 20; at++) {
    buffer.append(Buffer.from([at & 0xff]));
    memories.add(buffer.bytes.buffer);
    assert.ok(buffer.bytes.buffer.byteLength <= Math.max(64, 2 * buffer.length));
  }
  assert.ok(memories.size <= 20, `${memories.size} times`);
  const bytes = buffer.take();
  assert.ok(bytes.every((byte, at) => byte === (at & 0xff)));
  assert.deepEqual([bytes.length, buffer.length], [2 ** 20, 0]);
});
