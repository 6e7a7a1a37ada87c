// Text for people. Names, labels and reasons come from users and machines and may hold control characters, which could
// move the cursor, recolour the terminal or rewrite what it shows; so they are shown, not sent.

/**
 * C0 and C1 control characters, line and paragraph separators, and the characters that change the direction of text.
 */
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** The text on one line, with each control character as its escape, such as `\x1b`. */
export function toPrintable(text: string): string {
  return text.replace(CONTROL, (character) => {
    const code = character.charCodeAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u${code.padStart(4, '0')}`;
  });
}

export function printLine(text: string): void {
  console.log(toPrintable(text));
}

/** Rows of cells under headings. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  console.log(formatTable(headings, rows));
}

/** A line of the CLI itself on stderr. */
export function printNotice(text: string): void {
  console.error(`sandbar: ${toPrintable(text)}`);
}

/** What the API answered, exactly. */
export function printJson(value: unknown): void {
  console.log(JSON.stringify(value, null, 2));
}

/** Columns as wide as their widest cell, without trailing spaces. */
function formatTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows].map((line) => line.map(toPrintable));
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
