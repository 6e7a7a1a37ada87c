// Tests which idempotency key a request for a new machine gets.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyPerBody } from './create-request.ts';

test('key of a request > a repeated body keeps its key, and another body gets another key', () => {
  const keyOf = keyPerBody();
  const first = keyOf({ name: 'a' });
  assert.equal(keyOf({ name: 'a' }), first);
  assert.notEqual(keyOf({ name: 'b' }), first);
  assert.equal(keyOf({ name: 'a' }), first);
  assert.notEqual(keyPerBody()({ name: 'a' }), first);
});
