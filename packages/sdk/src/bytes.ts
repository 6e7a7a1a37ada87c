// Converts between bytes, text and base64. Works in browsers as well as in Node.

const encoder = new TextEncoder();

/** Encodes text as UTF-8. Returns bytes unchanged. */
export function toBytes(data: string | Uint8Array): Uint8Array {
  return typeof data === 'string' ? encoder.encode(data) : data;
}

/** The text of UTF-8 bytes. Invalid bytes become U+FFFD, and a byte order mark stays. */
export function toText(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}

export function concatBytes(chunks: readonly Uint8Array[]): Uint8Array {
  const only = chunks[0];
  if (chunks.length === 1 && only !== undefined) return only;
  const all = new Uint8Array(chunks.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** Reads all chunks and returns their bytes. */
export async function collectBytes(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return concatBytes(all);
}

/** Decodes base64. Uses the `Buffer` of Node, Deno and Bun where there is one, because it is many times faster. */
export function fromBase64(text: string): Uint8Array {
  if (typeof Buffer !== 'undefined') {
    const { buffer, byteOffset, length } = Buffer.from(text, 'base64');
    return new Uint8Array(buffer, byteOffset, length);
  }
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
  if (typeof Buffer !== 'undefined')
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64');
  // Convert in pieces, because a call can have only a limited number of arguments.
  let text = '';
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
