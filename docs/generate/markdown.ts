// Writes parts of Markdown pages from plain text, such as the descriptions in the OpenAPI document. VitePress compiles
// each page as a Vue template, in which `<` begins an element and `{{` an expression. So both are escaped.

/** Escapes the text of a paragraph. Text between backticks stays code; all other text is shown literally. */
export function prose(text: string): string {
  return text
    .split(/(`[^`\n]+`)/)
    .map((part, index) => (index % 2 === 1 ? part : part.replaceAll('<', '&lt;').replaceAll('{{', '&#123;&#123;')))
    .join('');
}

/** Escapes the text of a table cell: puts it on one line, and escapes `|`, which would end the cell. */
export function cell(text: string): string {
  return prose(text.replaceAll(/\s*\n\s*/g, ' ')).replaceAll('|', '\\|');
}

/** Inline code. It may stand in a table. */
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
