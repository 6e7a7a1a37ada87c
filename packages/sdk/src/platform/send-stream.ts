// Sends a request whose body is a stream. `fetch` throws the same error when the connection breaks and when the body
// fails, for example because a file cannot be read. The client could not tell the two apart, and would retry both. So
// this file uses `node:http` and throws the body's own error. It also closes the connection early, so that the service
// discards the partial body.
import { type ClientRequest, type IncomingMessage, request as overHttp } from 'node:http';
import { request as overHttps } from 'node:https';
import { buffer } from 'node:stream/consumers';
import { ConnectionError } from '../errors.ts';
import { settleLater } from '../settle-later.ts';
import type { StreamHead } from './platform.ts';

/**
 * Sends `body` and returns the answer, which may come before the end of the body. Throws the error of the body,
 * ConnectionError, or the reason of an aborted signal.
 */
export async function sendStream(
  url: string,
  { method, headers, signal }: StreamHead,
  body: AsyncIterable<Uint8Array>,
): Promise<Response> {
  signal?.throwIfAborted();
  const send = url.startsWith('https:') ? overHttps : overHttp;
  const request = send(url, { method, headers });
  const { promise: answered, resolve, reject } = settleLater<IncomingMessage>();
  const onAbort = () => request.destroy();
  signal?.addEventListener('abort', onAbort, { once: true });
  request.once('response', resolve);
  request.on('error', (error) => reject(new ConnectionError(url, error)));
  const sent = sendBody(request, body, answered).catch(reject);
  try {
    return await toResponse(await answered, url);
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    // The body was not sent to its end, because the service answered early or the request failed. Do not send the rest.
    if (!request.writableEnded) request.destroy();
    else await sent;
  }
}

/** Writes the body. Stops early when the answer has arrived or the connection is closed. */
async function sendBody(
  request: ClientRequest,
  body: AsyncIterable<Uint8Array>,
  answered: Promise<unknown>,
): Promise<void> {
  let isOver = false;
  const over = answered.then(
    () => {
      isOver = true;
    },
    () => {
      isOver = true;
    },
  );
  for await (const chunk of body) {
    if (isOver || request.destroyed) return;
    if (!request.write(chunk)) await Promise.race([drained(request), over]);
  }
  if (!isOver) request.end();
}

function drained(request: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      request.off('drain', done).off('close', done);
      resolve();
    };
    request.once('drain', done).once('close', done);
  });
}

async function toResponse(answer: IncomingMessage, url: string): Promise<Response> {
  const bytes = await buffer(answer).catch((error: unknown) => {
    throw new ConnectionError(url, error);
  });
  const { statusCode: status = 0, statusMessage: statusText = '', rawHeaders } = answer;
  const headers = new Headers();
  for (let at = 0; at < rawHeaders.length; at += 2) headers.append(rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '');
  return new Response(bytes.length === 0 ? null : bytes, { status, statusText, headers });
}
