// The pieces of text that are written to the stdin of a job. The job skips bytes that it accepted before, so a piece
// may be sent again at its offset.

/** `offset`: the position of the first byte in the whole stdin of the job. */
export type Piece = { text: string; offset: number; close: boolean };

/** The part of the piece that was not accepted. It begins with a whole character, of which a part may be accepted. */
export function restOf({ text, offset, close }: Piece, nextOffset: number): Piece | undefined {
  const bytes = new TextEncoder().encode(text);
  let from = Math.max(0, nextOffset - offset);
  if (from >= bytes.length) return undefined;
  // 10xxxxxx: not the first byte of a character.
  while (from > 0 && ((bytes[from] ?? 0) & 0xc0) === 0x80) from--;
  const rest = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(from));
  return { text: rest, offset: offset + from, close };
}

/**
 * The offset for `text` when it is not known how much of the piece `open` was accepted. Undefined: the text differs
 * from the piece, so the offset must be read from the job.
 */
export const retryOffset = (open: Piece, text: string): number | undefined =>
  text.startsWith(open.text) || open.text.startsWith(text) ? open.offset : undefined;
