// The control plane's end of a guest stream: one HTTP/1.1 request to the host agent whose body and answer are sent at
// the same time. undici cannot do that, so this uses Node's own client. Each stream has a connection of its own.
import { type ClientRequest, type IncomingMessage, request as startRequest } from 'node:http';
import { Duplex } from 'node:stream';
import type { ServiceError } from '@sandbar/contract/errors.ts';
import {
  decodeHeader,
  encodeHeader,
  GUEST_STREAM_HEADERS,
  GuestStreamEnd,
  HOST_HEADER_BYTES,
} from '@sandbar/contract/guest-calls.ts';
import { Value } from 'typebox/value';
import { breakConnection, HostConnections } from './connect.ts';
import type { HostTarget } from './target.ts';

export type HostStream = {
  /** The JSON with which the guest opened the stream. It comes from the guest, so it may be anything. */
  head: unknown;
  /**
   * `end()` ends our direction. The readable side ends after the guest's last byte, when its result is there. If the
   * stream breaks or the guest ends it with an error, the duplex is destroyed with that error and never ends.
   */
  duplex: Duplex;
  /** The guest's result, which may be anything. Rejects with the error that destroyed the duplex. */
  result: Promise<unknown>;
};

/** Makes the errors of a stream, so that the client of the host decides what they say. */
export type StreamErrors = {
  /** The host refused, with the text of its answer. */
  refused(status: number, body: string): ServiceError;
  /** The guest ended the stream with an error. */
  ended(error: { code: string; detail: string }): ServiceError;
  /** The connection could not be made, or it broke. */
  broken(cause: unknown): ServiceError;
};

/** The most bytes of a refusal. */
const REFUSAL_BYTES = 64 * 1024;

/**
 * After how many bytes of all streams the young generation of the heap is collected. Each piece of 64 KiB is garbage
 * once it was sent, and V8 would otherwise wait until the small objects around the pieces fill the young generation:
 * the process grew by 48 MiB while a file of 1 GiB went through it. A collection takes about 1 ms.
 */
const COLLECT_BYTES = 8 * 1024 * 1024;

/** Opens streams to the agent of a host. */
export class StreamTransport {
  readonly #connections: HostConnections;
  readonly #errors: StreamErrors;
  #uncollectedBytes = 0;

  constructor(target: HostTarget, errors: StreamErrors) {
    this.#connections = new HostConnections(target);
    this.#errors = errors;
  }

  /**
   * Opens a stream. Rejects when the guest has not opened it after `timeoutMs` milliseconds. When `signal` is aborted,
   * the stream is cut with its reason. `headers` are sent besides those of the stream.
   */
  async open(
    path: string,
    params: unknown,
    timeoutMs: number,
    signal: AbortSignal,
    headers: Record<string, string> = {},
  ): Promise<HostStream> {
    signal.throwIfAborted();
    const request = startRequest({
      agent: this.#connections,
      method: 'POST',
      path,
      maxHeaderSize: HOST_HEADER_BYTES,
      headers: {
        ...headers,
        // The host must not close the connection while it has unread bytes of ours, because then its answer could be
        // lost. So the host keeps the connection, and this end closes it after the answer.
        connection: 'keep-alive',
        'content-type': 'application/octet-stream',
        'transfer-encoding': 'chunked',
        [GUEST_STREAM_HEADERS.params]: encodeHeader(JSON.stringify(params)),
      },
    });
    const response = await this.#answerTo(request, timeoutMs, signal);
    const status = response.statusCode ?? 0;
    if (status !== 200) {
      const text = await readText(response).finally(() => request.destroy());
      throw this.#errors.refused(status, text);
    }
    const duplex = new HostDuplex(request, response, this.#errors, signal, this.#onPassed);
    const head = parseHeader(response.headers[GUEST_STREAM_HEADERS.head]);
    if (head === undefined) {
      const error = this.#errors.broken(new Error('The host opened a stream without a head.'));
      duplex.destroy(error);
      throw error;
    }
    return { head, duplex, result: duplex.result };
  }

  /** Cuts all streams. */
  close(): void {
    this.#connections.destroy();
  }

  readonly #onPassed = (bytes: number): void => {
    this.#uncollectedBytes += bytes;
    if (this.#uncollectedBytes < COLLECT_BYTES) return;
    this.#uncollectedBytes = 0;
    // Node has this function only with --expose-gc.
    void globalThis.gc?.({ type: 'minor' });
  };

  #answerTo(request: ClientRequest, timeoutMs: number, signal: AbortSignal): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const onAbort = () => request.destroy(signal.reason);
    const onTimeout = () => request.destroy(new DOMException('The host took too long.', 'TimeoutError'));
    const timer = setTimeout(onTimeout, timeoutMs);
    signal.addEventListener('abort', onAbort, { once: true });
    request.once('response', resolve);
    // Stays for the life of the request: the errors after the answer are seen on the response or by a write.
    request.on('error', (error) => reject(signal.aborted ? signal.reason : this.#errors.broken(error)));
    request.flushHeaders();
    return promise.finally(() => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    });
  }
}

class HostDuplex extends Duplex {
  readonly result: Promise<unknown>;
  readonly #request: ClientRequest;
  readonly #response: IncomingMessage;
  readonly #errors: StreamErrors;
  readonly #signal: AbortSignal;
  readonly #onPassed: (bytes: number) => void;
  readonly #settle: { resolve(result: unknown): void; reject(error: unknown): void };
  /** True when the guest has ended the stream. It takes no bytes any more. */
  #isOver = false;

  constructor(
    request: ClientRequest,
    response: IncomingMessage,
    errors: StreamErrors,
    signal: AbortSignal,
    onPassed: (bytes: number) => void,
  ) {
    // When the guest has ended the stream and all its bytes were read, our direction ends too.
    super({ allowHalfOpen: false });
    this.#request = request;
    this.#response = response;
    this.#errors = errors;
    this.#signal = signal;
    this.#onPassed = onPassed;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.result = promise;
    this.#settle = { resolve, reject };
    promise.catch(() => {});
    // The error is also in `result`.
    this.on('error', () => {});
    response.on('error', () => {});
    response.on('data', (chunk: Buffer) => {
      onPassed(chunk.length);
      if (!this.push(chunk)) response.pause();
    });
    response.once('close', () => this.#onClose());
    if (signal.aborted) this.#onAbort();
    else signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  override _read(): void {
    this.#response.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#onPassed(chunk.length);
    if (this.#isOver) done();
    else this.#request.write(chunk, (error) => this.#written(error, done));
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#isOver) done();
    else this.#request.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#isOver = true;
    this.#signal.removeEventListener('abort', this.#onAbort);
    if (this.#request.socket) breakConnection(this.#request.socket);
    this.#request.destroy();
    this.#settle.reject(error ?? this.#errors.broken(new Error('The stream was cut by this end.')));
    done(error);
  }

  readonly #onAbort = (): void => {
    this.destroy(this.#signal.reason);
  };

  #written(error: Error | null | undefined, done: (error?: Error | null) => void): void {
    if (error && !this.#isOver) done(this.#errors.broken(error));
    else done();
  }

  /** The whole answer has arrived, or the connection broke. */
  #onClose(): void {
    if (this.destroyed) return;
    const end = this.#response.complete ? parseHeader(this.#response.trailers[GUEST_STREAM_HEADERS.result]) : undefined;
    if (!Value.Check(GuestStreamEnd, end)) {
      this.destroy(this.#errors.broken(new Error('The connection to the host broke in a stream.')));
    } else if ('error' in end) {
      this.destroy(this.#errors.ended(end.error));
    } else {
      this.#isOver = true;
      this.#settle.resolve(end.result);
      this.push(null);
      // Our direction may still be open: the host reads and drops what we send. So close the connection.
      this.#request.destroy();
    }
  }
}

function parseHeader(value: string | string[] | undefined): unknown {
  if (typeof value !== 'string') return undefined;
  try {
    return JSON.parse(decodeHeader(value));
  } catch {
    return undefined;
  }
}

/** Reads a refusal. Returns the empty text when it breaks off. */
async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > REFUSAL_BYTES) break;
    }
  } catch {
    return '';
  }
  return Buffer.concat(chunks).toString();
}
