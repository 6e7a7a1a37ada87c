import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TerminalEscape } from './terminal-escape.ts';

/** Enters the pieces of input one by one. Returns the bytes for the terminal, and a final `!` if the user leaves. */
function press(...pieces: string[]): string {
  const keys = new TerminalEscape();
  let sent = '';
  for (const piece of pieces) {
    const { bytes, leaves } = keys.take(Buffer.from(piece));
    sent += Buffer.from(bytes);
    if (leaves) return `${sent}!`;
  }
  return sent;
}

describe('the keys ~.', () => {
  it('leave at the beginning of a line, however they arrive', () => {
    assert.equal(press('~.'), '!');
    assert.equal(press('~', '.', 'more'), '!');
    assert.equal(press('ls\r~.more'), 'ls\r!');
    assert.equal(press('ls\n', '~', '.'), 'ls\n!');
  });

  it('are two characters elsewhere', () => {
    assert.equal(press('a~.'), 'a~.');
    assert.equal(press('cd ~', '.', '\r'), 'cd ~.\r');
  });

  it('are sent as ~~. at the beginning of a line', () => {
    assert.equal(press('~~.'), '~.');
    assert.equal(press('~', '~', '~.'), '~~.');
  });

  it('delay no character except the first ~', () => {
    assert.equal(press('~/bin/x\r'), '~/bin/x\r');
    assert.equal(press('~'), '');
    assert.equal(press('~\r', '~.'), '~\r!');
    assert.equal(press('\u0003\u001b[A\u00ff'), '\u0003\u001b[A\u00ff');
  });
});
