// Tests the lines and colours of a job's output, in whatever pieces it arrives.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LineBuffer } from './line-buffer.ts';

const CHARS_MOST = 1_000_000;

const encode = (text: string) => new TextEncoder().encode(text);

/** The lines after all pieces were appended. Each line lists its spans as `text` or `text {classes}`. */
function linesOf(pieces: readonly Uint8Array[], linesMost = 1_000): string[] {
  const buffer = new LineBuffer(linesMost, CHARS_MOST);
  for (const piece of pieces) buffer.append(piece);
  buffer.append(new Uint8Array(), true);
  return buffer.lines.map(({ spans }) =>
    spans.map(({ text, classes }) => (classes.length === 0 ? text : `${text} {${classes.join(' ')}}`)).join('|'),
  );
}
const lines = (text: string) => linesOf([encode(text)]);

const MIXED = 'a€😀b\r\n\u001b[1;31mred\u001b[0m plain\n\u001b]0;title\u0007x\u001b[2Ky\n10%\r20%\r\nend';

test('output lines > splitting the bytes at any position gives the same lines', () => {
  const bytes = encode(MIXED);
  for (let position = 0; position <= bytes.length; position++) {
    const found = linesOf([bytes.subarray(0, position), bytes.subarray(position)]);
    assert.deepEqual(found, ['a€😀b', 'red {bold fg1}| plain', 'xy', '20%', 'end'], `position ${position}`);
  }
  assert.deepEqual(linesOf(Array.from(bytes, (byte) => Uint8Array.of(byte))), linesOf([bytes]));
});

test('output lines > an unfinished line is shown and then replaced', () => {
  const buffer = new LineBuffer(10, CHARS_MOST);
  buffer.append(encode('one\ntw'));
  assert.deepEqual(
    buffer.lines.map(({ key, spans }) => [key, spans.map(({ text }) => text).join('')]),
    [
      [0, 'one'],
      [1, 'tw'],
    ],
  );
  buffer.append(encode('o\n\nend'));
  assert.deepEqual(
    buffer.lines.map(({ key, spans }) => [key, spans.map(({ text }) => text).join('')]),
    [
      [0, 'one'],
      [1, 'two'],
      [2, ''],
      [3, 'end'],
    ],
  );
});

test('output lines > an empty output has no lines, and a final newline starts no new one', () => {
  assert.deepEqual(lines(''), []);
  assert.deepEqual(lines('a\n'), ['a']);
  assert.deepEqual(lines('\n\n'), ['', '']);
});

test('output lines > invalid UTF-8 becomes U+FFFD, and control characters are removed', () => {
  assert.deepEqual(linesOf([Uint8Array.of(0x61, 0xff, 0x62, 0xe2, 0x82)]), ['a\ufffdb\ufffd']);
  assert.deepEqual(lines('a\u0000\u0007b\u001b'), ['ab']);
  assert.deepEqual(lines('<img onerror=x>\u202e'), ['<img onerror=x>\u202e']);
});

test('output lines > a backspace removes the character before it', () => {
  assert.deepEqual(lines('N\bNA\bA'), ['NA']);
  assert.deepEqual(lines('x😀\by'), ['xy']);
  assert.deepEqual(lines('\b\bz'), ['z']);
});

test('output lines > a very long line continues on the next row without splitting a character', () => {
  const found = lines(`${'a'.repeat(1_999)}😀${'b'.repeat(3_000)}`);
  assert.deepEqual(
    found.map((line) => line.length),
    [1_999, 2_000, 1_002],
  );
  assert.equal(found.join(''), `${'a'.repeat(1_999)}😀${'b'.repeat(3_000)}`);
});

test('output lines > only the newest lines are kept, and they keep their numbers', () => {
  const buffer = new LineBuffer(100, CHARS_MOST);
  for (let line = 0; line < 1_000; line++) buffer.append(encode(`${line}\n`));
  assert.ok(buffer.lines.length <= 100 && buffer.lines.length > 80);
  assert.equal(buffer.dropped, buffer.lines[0]?.key);
  for (const { key, spans } of buffer.lines) assert.equal(spans[0]?.text, String(key));
});

test('output lines > only the newest characters are kept', () => {
  const buffer = new LineBuffer(1_000, 10_000);
  for (let line = 0; line < 500; line++) {
    buffer.append(encode(`${String(line).padStart(50)}`));
    buffer.append(encode(`${'x'.repeat(50)}\n`));
  }
  assert.ok(buffer.lines.length <= 100 && buffer.lines.length > 80, `${buffer.lines.length} lines`);
  assert.equal(buffer.lines.at(-1)?.key, 499);
  assert.equal(buffer.dropped, 500 - buffer.lines.length);
});

test('output colours > a style lasts for all lines until it is reset', () => {
  assert.deepEqual(lines('\u001b[32ma\nb\u001b[mc'), ['a {fg2}', 'b {fg2}|c']);
  assert.deepEqual(lines('\u001b[1m\u001b[4mx\u001b[22my\u001b[24mz'), ['x {bold underline}|y {underline}|z']);
});

test('output colours > 256-colour and 24-bit codes become one of the 16 named colours', () => {
  assert.deepEqual(lines('\u001b[38;5;196mr\u001b[38;2;10;20;120mb\u001b[48;5;3;1mc'), [
    'r {fg9}|b {fg4}|c {bold fg4 bg3}',
  ]);
  assert.deepEqual(lines('\u001b[38:5:244mg\u001b[95mm\u001b[39md'), ['g {fg8}|m {fg13}|d']);
  assert.deepEqual(lines('\u001b[38;9mx\u001b[999my'), ['x {strike}|y {strike}']);
});
