// Tests the output of a job that has arrived but was not read yet.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnreadOutput } from '../src/guest/unread-output.ts';

test('output that keeps arriving on one stream does not hold up the other stream (RES-6)', () => {
  const unread = new UnreadOutput();
  unread.add('stderr', 0, Buffer.from('an error'));
  const taken: string[] = [];
  for (let offset = 0; offset < 4; offset++) {
    unread.add('stdout', offset, Buffer.from('x'));
    taken.push(unread.take()?.output.stream ?? 'nothing');
  }
  assert.deepEqual(taken, ['stdout', 'stderr', 'stdout', 'stdout']);
});
