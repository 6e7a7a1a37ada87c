// Reads a file for the editor, which takes small UTF-8 texts only. Saving must not change bytes that the person did not
// edit, so a text that a text field would change, such as one with mixed line ends, cannot be edited.
import { queryOptions } from '@tanstack/react-query';
import { problemOf, request } from '../../api/raw-request.ts';
import type { EncodedPath } from './path.ts';
import { filesKey, fileUrl } from './requests.ts';

/** The longest text that is shown, bytes. */
export const TEXT_BYTES_MAX = 1024 * 1024;

type LineEnd = '\n' | '\r\n';
/** `etag` names the version of the file. `lines`: the text with line feeds alone, as a text field has it. */
export type TextContent = { kind: 'text'; etag: string; lines: string; lineEnd: LineEnd };
export type Content = TextContent | { kind: 'none'; why: string };

/** The content of a file as the editor needs it. */
export const contentQuery = (machineId: string, path: EncodedPath) =>
  queryOptions({
    queryKey: [...filesKey(machineId), 'content', path],
    queryFn: ({ signal }) => readContent(fileUrl(machineId, 'content', path), signal),
  });

async function readContent(url: string, signal: AbortSignal): Promise<Content> {
  const response = await request(url, { signal });
  if (!response.ok) throw await problemOf(response);
  const bytes = await readBytes(response);
  if (bytes === undefined) return none('It is larger than 1 MiB.');
  const text = decodeText(bytes);
  if (text === undefined) return none('It is not a text in UTF-8.');
  const lineEnd = lineEndOf(text);
  if (lineEnd === undefined) return none('Its lines end in different ways, which a text field would change.');
  return { kind: 'text', etag: response.headers.get('etag') ?? '', lines: text.replaceAll('\r\n', '\n'), lineEnd };
}

/** The ETag that the file has now; undefined when the file does not exist any more. */
export async function presentEtag(url: string): Promise<string | undefined> {
  const response = await request(url, { method: 'HEAD' });
  if (response.status === 404) return undefined;
  if (!response.ok) throw await problemOf(response);
  return response.headers.get('etag') ?? '';
}

/** Converts the text of the text field back to the bytes of the file. */
export const toBlob = (lines: string, lineEnd: LineEnd): Blob => new Blob([lines.replaceAll('\n', lineEnd)]);

const none = (why: string): Content => ({ kind: 'none', why });

/** Returns undefined for a body that is too long. A file of /proc has no length, so the bytes are counted. */
async function readBytes({ body }: Response): Promise<Uint8Array | undefined> {
  const pieces: BlobPart[] = [];
  let length = 0;
  const reader = body?.getReader();
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { value: undefined, done: true };
    if (done || value === undefined) return new Uint8Array(await new Blob(pieces).arrayBuffer());
    length += value.length;
    if (length > TEXT_BYTES_MAX) {
      await reader?.cancel();
      return undefined;
    }
    pieces.push(value);
  }
}

/** Returns undefined for bytes that are no text. A byte order mark stays, so that it is saved again. */
function decodeText(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Returns undefined for a text with several kinds of line ends. */
function lineEndOf(text: string): LineEnd | undefined {
  if (!text.includes('\r')) return '\n';
  return /\r(?!\n)|(?<!\r)\n/.test(text) ? undefined : '\r\n';
}
