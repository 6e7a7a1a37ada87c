// Tests which request the form for the expiry makes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Expiry } from '../../machines/create-body.ts';
import { checkExpiry } from '../../machines/create-check.ts';
import { expiryUpdate } from './expiry-update.ts';

const EMPTY: Expiry = { count: '', unit: 'hours', action: 'stop' };

test('expiry > an empty field changes only what happens then', () => {
  assert.deepEqual(expiryUpdate(EMPTY, false), { on_expiry: 'stop' });
});

test('expiry > a number sets the time, and only the box takes it away', () => {
  assert.deepEqual(expiryUpdate({ ...EMPTY, count: '3' }, false), { on_expiry: 'stop', expires_in_sec: 10_800 });
  assert.deepEqual(expiryUpdate(EMPTY, true), { on_expiry: 'stop', expires_in_sec: null });
});

test('expiry > a text that is no number is refused', () => {
  for (const count of ['1e', '-', 'two', '1.0001', 'Infinity']) {
    assert.ok(checkExpiry({ ...EMPTY, count }), count);
  }
  assert.equal(checkExpiry({ ...EMPTY, count: ' 3 ' }), undefined);
});
