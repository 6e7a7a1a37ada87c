// Makes text from users safe to show. It may contain characters that are invisible, or that reverse the text after
// them, so that a program looks like a text file.

/** Control characters, separators of lines and paragraphs, and the characters that override or isolate a direction. */
const DECEPTIVE = /[\p{Cc}\u2028-\u202E\u2066-\u2069]/gu;

/** Writes deceptive characters as escapes, such as `\u202E`. */
export const visibleText = (text: string): string =>
  text.replace(DECEPTIVE, (character) => `\\u${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`);

/**
 * Does in plain text what `<bdi>` does in the document: the direction of the letters in `text` changes nothing around
 * it. For titles, tooltips and the options of a select, which cannot contain elements.
 */
export const isolate = (text: string): string => `\u2068${visibleText(text)}\u2069`;
