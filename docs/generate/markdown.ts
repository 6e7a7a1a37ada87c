// Writes parts of Markdown pages from plain text, such as the descriptions in the OpenAPI document. VitePress compiles
// each page as a Vue template, which would take a `<` of the text for an element and a `{{` for an expression. So they
// are escaped.

/** Text of a paragraph: what is between backticks stays code, everything else is shown as it stands. */
export function prose(text: string): string {
  return text
    .split(/(`[^`\n]+`)/)
    .map((part, index) => (index % 2 === 1 ? part : part.replaceAll('<', '&lt;').replaceAll('{{', '&#123;&#123;')))
    .join('');
}

/** Text of a cell of a table: in one line, and without a bar of its own. */
export function cell(text: string): string {
  return prose(text.replaceAll(/\s*\n\s*/g, ' ')).replaceAll('|', '\\|');
}

/** Inline code, in a table or outside of one. */
export function code(text: string): string {
  return `\`${text.replaceAll('|', '\\|')}\``;
}

/** A table; empty when it has no rows. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return '';
  const lines = [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
  return `${lines.join('\n')}\n`;
}

/** The anchor that VitePress gives to a heading. */
export function anchor(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^a-z0-9_]+/g, '-')
    .replaceAll(/^-|-$/g, '');
}
