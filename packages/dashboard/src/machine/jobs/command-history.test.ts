// Tests the command history of the command box.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addCommand, recall } from './command-history.ts';

test('command history > the arrow keys walk to older commands and back to the draft', () => {
  const commands = ['ls', 'pwd'];
  const one = recall(commands, { at: 2, draft: 'ec' }, -1);
  assert.equal(one?.text, 'pwd');
  const two = recall(commands, one, -1);
  assert.equal(two?.text, 'ls');
  assert.equal(recall(commands, two, -1), undefined);
  assert.equal(recall(commands, one, 1)?.text, 'ec');
  assert.equal(recall(commands, { at: 2, draft: 'ec' }, 1), undefined);
  assert.equal(recall([], { at: 0, draft: '' }, -1), undefined);
});

test('command history > a repeated command is kept once, and 100 commands at most', () => {
  assert.deepEqual(addCommand(['a', 'b'], 'a'), ['b', 'a']);
  let commands: string[] = [];
  for (let number = 0; number < 150; number++) commands = addCommand(commands, `c${number}`);
  assert.equal(commands.length, 100);
  assert.equal(commands.at(-1), 'c149');
});
