// Tests how text from users is made safe to show.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isolate, visibleText } from './visible-text.ts';

test('visible text > control characters and overrides of the direction become escapes', () => {
  assert.equal(visibleText('a\u0000\u001b\n\u009f\u2029b'), 'a\\u0000\\u001B\\u000A\\u009F\\u2029b');
  assert.equal(visibleText('photo\u202Egpj.exe'), 'photo\\u202Egpj.exe');
});

test('visible text > letters, marks and emoji of every script stay', () => {
  for (const text of ['<img src=x>', 'שלום\u200f', 'مرحبا\u061c', '👩\u200d💻', 'e\u0301']) {
    assert.equal(visibleText(text), text);
  }
});

test('isolated text > no character in it ends the isolation', () => {
  assert.equal(isolate('a\u2069\u202Eb'), '\u2068a\\u2069\\u202Eb\u2069');
});
