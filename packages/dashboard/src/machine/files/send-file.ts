// Writes a file by XMLHttpRequest, because fetch does not report the progress of an upload. The browser reads the file
// while it sends it, so a large file is never in memory.
import { ApiProblem } from '../../api/client.ts';

type Options = {
  /** Refuse with 409 when the file exists. */
  isExclusive?: boolean;
  /** Refuse with 409 when the file does not have this ETag. */
  ifMatch?: string;
  onProgress?: (sentBytes: number) => void;
  signal?: AbortSignal;
};

/**
 * Sends the file. After 429 it waits as long as the answer says and sends again. Throws ApiProblem, or the reason of
 * the signal.
 */
export async function sendFile(url: string, content: Blob, options: Options = {}): Promise<void> {
  for (;;) {
    const { status, retryAfterSec, body } = await send(url, content, options);
    if (status < 300) return;
    if (status !== 429 || retryAfterSec === undefined) throw toProblem(status, body);
    await new Promise((resolve) => setTimeout(resolve, retryAfterSec * 1000));
    options.signal?.throwIfAborted();
  }
}

type Answer = { status: number; retryAfterSec: number | undefined; body: string };

function send(url: string, content: Blob, { isExclusive, ifMatch, onProgress, signal }: Options): Promise<Answer> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    signal?.addEventListener('abort', abort);
    request.open('PUT', url);
    request.setRequestHeader('content-type', 'application/octet-stream');
    if (isExclusive) request.setRequestHeader('if-none-match', '*');
    if (ifMatch !== undefined) request.setRequestHeader('if-match', ifMatch);
    request.upload.onprogress = ({ loaded }) => onProgress?.(loaded);
    request.onload = () => {
      const retryAfter = request.getResponseHeader('retry-after');
      resolve({
        status: request.status,
        retryAfterSec: retryAfter === null ? undefined : Number(retryAfter),
        body: request.responseText,
      });
    };
    request.onerror = () =>
      reject(new ApiProblem(0, 'unreachable', 'The connection broke. Nothing was written.', null));
    request.onabort = () => reject(signal?.reason);
    request.onloadend = () => signal?.removeEventListener('abort', abort);
    request.send(content);
  });
}

function toProblem(status: number, body: string): ApiProblem {
  try {
    const { code, detail } = JSON.parse(body) as { code: string; detail: string };
    return new ApiProblem(status, code, detail, null);
  } catch (cause) {
    return new ApiProblem(status, 'unknown', `The service answered with status ${status}.`, null, { cause });
  }
}
