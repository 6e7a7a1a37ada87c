// Tests the text for an amount of bytes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatBytes } from './bytes.ts';

test('bytes > an amount has the largest unit that fits', () => {
  assert.deepEqual([0, 1023, 1024, 1536, 5 * 2 ** 20, 2 ** 31, 2 ** 42, 2 ** 52].map(formatBytes), [
    '0 B',
    '1023 B',
    '1 KiB',
    '1.5 KiB',
    '5 MiB',
    '2 GiB',
    '4 TiB',
    '4096 TiB',
  ]);
});
