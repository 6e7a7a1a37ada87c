// Reads some bytes of a file with one request. Returns them as text or, when they are not text, as base64.
import { encodePath } from '@sandbar/contract/file-path.ts';
import { concatBytes, toBase64, toText } from '@sandbar/sdk/bytes.ts';
import type { CallOptions } from '@sandbar/sdk/call-options.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { machinePath } from '@sandbar/sdk/machines.ts';
import { RangeNotSatisfiableError } from '@sandbar/sdk/service-errors.ts';
import { asText, completeLength, continuationBytes } from './text-part.ts';

export const FILE_ENCODINGS = ['utf-8', 'base64'] as const;
export type FileEncoding = (typeof FILE_ENCODINGS)[number];

/** `size`: the size of the whole file. It is null when unknown, for example for a file in /proc. */
export type FileBytes = { bytes: Uint8Array; offset: number; size: number | null; isEnd: boolean };

export type FilePart = {
  content: string;
  encoding: FileEncoding;
  offset: number;
  /** The position from which to read the rest; null at the end of the file. */
  nextOffset: number | null;
};

/** Reads at most `maxBytes` bytes from `offset` on. Throws as the calls of the client do. */
export async function readFileBytes(
  client: Client,
  file: { machineId: string; path: string; offset: number; maxBytes: number },
  { signal }: CallOptions,
): Promise<FileBytes> {
  const { machineId, path, offset, maxBytes } = file;
  const url = `${machinePath(machineId)}/files/content?path=${encodePath(path)}`;
  const headers = { accept: 'application/octet-stream', range: `bytes=${offset}-${offset + maxBytes - 1}` };
  let response: Response;
  try {
    response = await client.request('GET', url, { headers, signal });
  } catch (error) {
    // The file is empty, so even a range that begins at 0 is refused.
    if (!(error instanceof RangeNotSatisfiableError && offset === 0)) throw error;
    return { bytes: new Uint8Array(), offset, size: 0, isEnd: true };
  }
  // The service sends the whole file instead of the range when the file has no size.
  const isWhole = response.status !== 206;
  const skipped = isWhole ? offset : 0;
  const sent = await readAtMost(client, response, skipped + maxBytes + 1, signal);
  const bytes = sent.subarray(skipped, skipped + maxBytes);
  const size = sizeOf(response);
  const isEnd = size === null ? sent.length <= skipped + maxBytes : offset + bytes.length >= size;
  return { bytes, offset, size, isEnd };
}

/**
 * Makes the result of a read. Text is cut only between characters. Without `wanted`, bytes that are not UTF-8 text are
 * returned as base64.
 */
export function toFilePart({ bytes, offset, isEnd }: FileBytes, wanted: FileEncoding | undefined): FilePart {
  const start = offset === 0 ? 0 : continuationBytes(bytes);
  const end = isEnd ? bytes.length : Math.max(start, completeLength(bytes));
  const inside = bytes.subarray(start, end);
  const text = wanted === 'base64' ? undefined : wanted === 'utf-8' ? toText(inside) : asText(inside);
  if (text !== undefined) {
    return { content: text, encoding: 'utf-8', offset: offset + start, nextOffset: isEnd ? null : offset + end };
  }
  const nextOffset = isEnd ? null : offset + bytes.length;
  return { content: toBase64(bytes), encoding: 'base64', offset, nextOffset };
}

async function readAtMost(
  client: Client,
  response: Response,
  most: number,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of response.body ?? []) {
      chunks.push(chunk);
      length += chunk.length;
      if (length >= most) break;
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw new ConnectionError(client.baseUrl, error);
  }
  return concatBytes(chunks);
}

/** The size of the whole file. It is in Content-Range if the response is a part of the file, else in Content-Length. */
function sizeOf({ status, headers }: Response): number | null {
  const text = status === 206 ? headers.get('content-range')?.split('/')[1] : headers.get('content-length');
  return text === null || text === undefined || !/^\d+$/.test(text) ? null : Number(text);
}
