// The content of an upload, and whether it can be sent again.
import type { RequestOptions } from './transport.ts';

/**
 * The content of an upload. The client calls a function once for each attempt; it must return the bytes from their
 * beginning, for example `() => createReadStream(file)`. An iterable can be read only once, so its upload is never
 * repeated.
 */
export type Content = string | Uint8Array | (() => AsyncIterable<Uint8Array>) | AsyncIterable<Uint8Array>;

/** A larger byte array is sent in pieces of this size, because `fetch` would first copy the whole array. */
const PIECE_BYTES = 1024 * 1024;

/** The options of a request that sends the content. `isRepeatable`: whether the service may carry it out twice. */
export function openContent(
  content: Content,
  isRepeatable: boolean,
): Pick<RequestOptions, 'content' | 'isRepeatable' | 'isSentOnce'> {
  if (typeof content === 'string') return { content: () => content, isRepeatable };
  if (content instanceof Uint8Array) {
    if (content.length <= PIECE_BYTES) return { content: () => content, isRepeatable };
    return { content: () => piecesOf(content), isRepeatable };
  }
  if (typeof content === 'function') return { content, isRepeatable };
  return { content: () => content, isRepeatable: false, isSentOnce: true };
}

async function* piecesOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}
