// Turns a job's output into lines of styled text, as it arrives. The pieces may end anywhere: within a character, an
// escape sequence or a line. Escape sequences other than colours are removed, because this is a log and not a terminal.
import { KeptLines } from './kept-lines.ts';
import { applySgr, classNames, PLAIN, type TextStyle } from './text-style.ts';

type Span = { readonly text: string; readonly classes: readonly string[] };
/** `key`: the number of the line in the output. It stays when older lines are dropped. */
export type Line = { readonly key: number; readonly spans: readonly Span[] };

/** A longer line continues on the next row, because a browser takes seconds to lay out a line of megabytes. */
const LINE_CHARS = 2_000;
/** How many characters an escape sequence may have. A longer one is shown as text. */
const ESCAPE_CHARS = 4_096;

const CONTROL =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: this is the grammar of control sequences (ECMA-48).
  /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?![[\]PX^_])[ -/]*[0-~]|\r\n|[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: see above.
const UNFINISHED = /(?:\x1b(?:\[[ -?]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\r)$/;

export class LineBuffer {
  readonly #kept: KeptLines;
  readonly #decoder = new TextDecoder();
  #nextKey = 0;
  /** The line that has not ended. It is the last of `lines` once it has text. */
  #spans: Span[] = [];
  #chars = 0;
  #style: TextStyle = PLAIN;
  #classes: readonly string[] = [];
  #carry = '';
  /** A carriage return came, so the next text replaces the line. */
  #isReturned = false;

  /** How many lines and how many characters are kept. Older lines are dropped. */
  constructor(linesMost: number, charsMost: number) {
    this.#kept = new KeptLines(linesMost, charsMost);
  }

  /** All kept lines. The array changes in place; a line in it never does. */
  get lines(): readonly Line[] {
    return this.#kept.all;
  }

  /** How many lines were dropped because of the limits. */
  get dropped(): number {
    return this.lines[0]?.key ?? 0;
  }

  /** Appends bytes of UTF-8. Invalid bytes become U+FFFD. `isLast`: nothing follows. */
  append(bytes: Uint8Array, isLast = false): void {
    const text = this.#carry + this.#decoder.decode(bytes, { stream: !isLast });
    const [tail = ''] = isLast ? [] : (UNFINISHED.exec(text.slice(-ESCAPE_CHARS)) ?? []);
    this.#carry = tail;
    this.#read(text.slice(0, text.length - tail.length));
    this.#showUnfinished();
    this.#kept.dropOldest();
  }

  #read(text: string): void {
    let from = 0;
    for (const match of text.matchAll(CONTROL)) {
      this.#write(text.slice(from, match.index));
      from = match.index + match[0].length;
      const [control, parameters = '', final] = match;
      if (control === '\n' || control === '\r\n') this.#endLine();
      else if (control === '\r') this.#isReturned = true;
      else if (control === '\b') this.#eraseLast();
      else if (final === 'm') this.#select(applySgr(this.#style, parameters));
    }
    this.#write(text.slice(from));
  }

  #write(text: string): void {
    if (text === '') return;
    if (this.#isReturned) this.#clear();
    let rest = text;
    while (this.#chars + rest.length > LINE_CHARS) {
      const room = LINE_CHARS - this.#chars;
      const splitsPair = isHighSurrogate(rest.charCodeAt(room - 1));
      const head = rest.slice(0, splitsPair ? room - 1 : room);
      this.#push(head);
      this.#endLine();
      rest = rest.slice(head.length);
    }
    this.#push(rest);
  }

  #push(text: string): void {
    if (text === '') return;
    const last = this.#spans.at(-1);
    if (last?.classes === this.#classes) this.#spans[this.#spans.length - 1] = { ...last, text: last.text + text };
    else this.#spans.push({ text, classes: this.#classes });
    this.#chars += text.length;
  }

  #select(style: TextStyle): void {
    if (style === this.#style) return;
    this.#style = style;
    this.#classes = classNames(style);
  }

  #eraseLast(): void {
    const last = this.#spans.pop();
    if (!last) return;
    const text = [...last.text].slice(0, -1).join('');
    this.#chars -= last.text.length - text.length;
    if (text !== '') this.#spans.push({ ...last, text });
  }

  #clear(): void {
    this.#spans = [];
    this.#chars = 0;
    this.#isReturned = false;
  }

  #endLine(): void {
    this.#place();
    this.#nextKey++;
    this.#clear();
  }

  #showUnfinished(): void {
    if (this.#spans.length > 0 || this.lines.at(-1)?.key === this.#nextKey) this.#place();
  }

  /** Appends the current line, or replaces its unfinished version when that is already the last line. */
  #place(): void {
    this.#kept.place({ key: this.#nextKey, spans: this.#spans.slice() });
  }
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
