// Tests which text a field shows while the URL follows it.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { follow, opened, typed } from './url-text.ts';

describe('the text of a field that the URL holds too', () => {
  it('stays while the URL takes over what was typed before', () => {
    const fast = typed(typed(opened(''), 'a'), 'ab');
    const behind = follow(fast, 'a');
    assert.equal(behind.text, 'ab');
    assert.deepEqual(follow(behind, 'ab'), opened('ab'));
  });

  it('stays when the URL leaves out a text', () => {
    const fast = typed(typed(typed(opened(''), 'a'), 'ab'), 'abc');
    assert.deepEqual(follow(fast, 'abc'), opened('abc'));
  });

  it('is replaced when something else changes the URL', () => {
    const known = follow(typed(opened(''), 'a'), 'a');
    assert.equal(follow(known, '').text, '');
    assert.equal(follow(typed(opened('x'), 'xy'), 'other').text, 'other');
  });
});
