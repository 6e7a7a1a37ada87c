// Prints text for people. Names, labels and error texts come from other people and from machines. They may contain
// control characters, which could clear the screen or fake output, so each of these is printed as a visible escape.
import { styleText } from 'node:util';

/** Control characters, line and paragraph separators, and the characters that change the direction of text. */
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** Replaces each control character, including line ends, by its escape, such as `\x1b`. */
export function toPrintable(text: string): string {
  return text.replace(CONTROL, (character) => {
    const code = character.charCodeAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u${code.padStart(4, '0')}`;
  });
}

export function printLine(text: string): void {
  console.log(toPrintable(text));
}

/** The colours of states in tables. They are used only on a terminal, and not when NO_COLOR is set. */
const STATE_COLOURS: Readonly<Record<string, 'green' | 'yellow' | 'red' | 'gray'>> = {
  running: 'green',
  ready: 'green',
  available: 'green',
  attached: 'green',
  pending: 'yellow',
  provisioning: 'yellow',
  error: 'red',
  timed_out: 'red',
  lost: 'red',
  stopped: 'gray',
  destroyed: 'gray',
  canceled: 'gray',
};

/** Prints rows of cells under headings. Columns are as wide as their widest cell. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  console.log(formatTable(headings, rows));
}

/** Prints rows as `printTable` does. When there are no rows, prints the message `none` on stderr. */
export function printRows(headings: readonly string[], rows: readonly (readonly string[])[], none: string): void {
  if (rows.length === 0) console.error(none);
  else printTable(headings, rows);
}

/** Prints a message of the CLI itself to stderr. */
export function printNotice(text: string): void {
  console.error(`sandbar: ${toPrintable(text)}`);
}

/** Prints a response of the API unchanged, as JSON. */
export function printJson(value: unknown): void {
  console.log(JSON.stringify(value, null, 2));
}

function formatTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows].map((line) => line.map(toPrintable));
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  const format = (line: readonly string[]) =>
    line.map((cell, column) => paint(headings[column], cell, cell.padEnd(widths[column] ?? 0)));
  return lines.map((line) => format(line).join('  ').trimEnd()).join('\n');
}

/** Colours a cell with a state. `styleText` adds no colour when stdout is no terminal or NO_COLOR is set. */
function paint(heading: string | undefined, cell: string, padded: string): string {
  if (heading !== 'STATE' && heading !== 'STATUS') return padded;
  const colour = Object.hasOwn(STATE_COLOURS, cell) ? STATE_COLOURS[cell] : undefined;
  return colour === undefined ? padded : styleText(colour, padded, { stream: process.stdout });
}

/** Bytes in the unit that fits, such as `1.5 MB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  return `${power === 0 ? Math.floor(bytes) : (bytes / 1000 ** power).toFixed(1)} ${units[power]}`;
}
