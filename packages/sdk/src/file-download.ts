// Downloads a file. When the connection breaks, the download continues at the same byte, unless the file was changed.

import type { CallOptions } from './call-options.ts';
import { ConnectionError, FileChangedError } from './errors.ts';
import { ReopenSchedule } from './reopen-schedule.ts';
import { SandbarError } from './service-errors.ts';
import type { Transport } from './transport.ts';

export type DownloadOptions = CallOptions & {
  /** The position of the first byte to read. Default: 0. */
  start?: number | undefined;
  /** The position of the last byte to read. Default: the end of the file. */
  end?: number | undefined;
};

/**
 * Yields the bytes of the file at `url`. Throws ConnectionError when the connection breaks and the download cannot
 * continue: the time for retries is over, or the file, such as a file in /proc, can be read only from its beginning.
 */
export async function* downloadFile(
  transport: Transport,
  url: string,
  { start = 0, end, ...call }: DownloadOptions,
): AsyncGenerator<Uint8Array> {
  const { signal, isDone } = transport.limit(call);
  const schedule = new ReopenSchedule(transport.retryForMs);
  let position = start;
  let etag: string | undefined;
  let hasParts = true;
  try {
    for (;;) {
      try {
        const response = await openFrom(transport, url, { position, end, etag, signal });
        etag = response.headers.get('etag') ?? undefined;
        hasParts = response.headers.has('accept-ranges');
        for await (const chunk of bytesOf(transport, response, signal)) {
          position += chunk.length;
          schedule.noteProgress();
          yield chunk;
        }
        return;
      } catch (error) {
        if (!hasParts && position > start) throw error;
        await schedule.wait(error, signal);
      }
    }
  } finally {
    isDone();
  }
}

type Part = { position: number; end: number | undefined; etag: string | undefined; signal: AbortSignal | undefined };

/** Requests the file from the byte at `position` on. Throws FileChangedError if its ETag differs from `etag`. */
async function openFrom(transport: Transport, url: string, { position, end, etag, signal }: Part): Promise<Response> {
  const isPart = position > 0 || end !== undefined;
  const headers = {
    accept: 'application/octet-stream',
    ...(isPart ? { range: `bytes=${position}-${end ?? ''}` } : {}),
    ...(isPart && etag !== undefined ? { 'if-range': etag } : {}),
  };
  const response = await transport.open('GET', url, { headers, signal }).catch((error: unknown) => {
    // The file is now shorter than the part that was read before.
    if (etag !== undefined && error instanceof SandbarError && error.status === 416) throw new FileChangedError();
    throw error;
  });
  if (etag === undefined || response.headers.get('etag') === etag) return response;
  await response.body?.cancel();
  throw new FileChangedError();
}

/** The bytes of one response. Throws ConnectionError when the connection breaks before the end. */
async function* bytesOf(
  transport: Transport,
  response: Response,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of response.body ?? []) yield chunk;
  } catch (error) {
    signal?.throwIfAborted();
    throw new ConnectionError(transport.baseUrl, error);
  }
}
