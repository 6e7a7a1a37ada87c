// Relays one HTTP request to a port of a machine, and its response back. Both bodies are streams that wait for their
// reader. A message that breaks off is broken off on the other side too, so nobody takes it for complete.
import { type ClientRequest, type IncomingMessage, request as openRequest, type ServerResponse } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { wasCut } from '../hosts/port-socket.ts';
import type { PortConnections, PortTarget } from './connections.ts';
import { type Forwarded, toClient, toMachine, trailersOf } from './headers.ts';

export type Relayed = {
  target: PortTarget;
  /** The path and query for the machine. */
  path: string;
  forwarded: Forwarded;
  frameOrigins: readonly string[];
};

/** How often a request is repeated because the machine closed a kept connection at the same moment. */
const REPEATS = 2;
/**
 * How long a program may take to answer `Expect: 100-continue`, milliseconds. curl waits as long and then sends the
 * body.
 */
const CONTINUE_MS = 1_000;

/**
 * Relays a request until the response is closed. Rejects when the machine gives no response, before anything was sent
 * to the client: with the `ServiceError` of the connection or with `port_not_open`. An abort of `signal` breaks the
 * relay off.
 */
export async function relayRequest(
  connections: PortConnections,
  relayed: Relayed,
  { request, response, signal }: { request: IncomingMessage; response: ServerResponse; signal: AbortSignal },
): Promise<void> {
  const body = bodyOf(request);
  const end = () => response.destroy();
  signal.addEventListener('abort', end, { once: true });
  try {
    for (let repeats = 0; ; repeats++) {
      const outcome = await relayOnce(connections, relayed, { request, response, body });
      if (outcome === 'closed') return;
      if (outcome.isStale && repeats < REPEATS && !response.destroyed) continue;
      throw outcome.error;
    }
  } finally {
    signal.removeEventListener('abort', end);
  }
}

type Exchange = { request: IncomingMessage; response: ServerResponse; body: string[] };
type Failure = { error: Error; isStale: boolean };

function relayOnce(
  connections: PortConnections,
  relayed: Relayed,
  { request, response, body }: Exchange,
): Promise<'closed' | Failure> {
  const { promise, resolve } = Promise.withResolvers<'closed' | Failure>();
  const isRepeatable = body.length === 0 && (request.method === 'GET' || request.method === 'HEAD');
  const upstream = openRequest({
    ...connections.optionsFor(relayed.target, !isRepeatable),
    method: request.method,
    path: relayed.path,
    headers: [...toMachine(request.rawHeaders, relayed.forwarded), ...body],
  });
  upstream.maxHeadersCount = 0;
  let hasAnswer = false;
  const onGone = () => {
    upstream.destroy();
    resolve('closed');
  };
  response.once('close', onGone);
  if (request.headers.expect !== undefined) passContinue(upstream, response);
  upstream.once('response', (answer) => {
    hasAnswer = true;
    try {
      sendAnswer(answer, response, request.complete, relayed.frameOrigins);
    } catch (error) {
      answer.destroy();
      fail(noAnswer(relayed.target.port, error as Error), false);
    }
  });
  upstream.once('error', (error) => {
    // After the answer has begun, ignore errors of the request: the machine may stop reading it early. The error or end
    // of the answer decides.
    if (!hasAnswer) fail(explain(relayed.target.port, upstream, error), isRepeatable && upstream.reusedSocket);
  });
  const fail = (error: Error, isStale: boolean) => {
    response.off('close', onGone);
    upstream.destroy();
    resolve({ error, isStale });
  };
  // A program may answer with an upgrade that nobody asked for. Then node closes the request without an error.
  upstream.once('close', () => {
    if (!hasAnswer) fail(noAnswer(relayed.target.port), false);
  });
  sendBody(request, upstream);
  return promise;
}

/**
 * Tells the client to send its body when the program asks for the body, or after {@link CONTINUE_MS}: simple servers
 * never ask, and some clients would wait for ever.
 */
function passContinue(upstream: ClientRequest, response: ServerResponse): void {
  const pass = () => {
    clearTimeout(timer);
    if (!response.headersSent && !response.destroyed) response.writeContinue();
  };
  const timer = setTimeout(pass, CONTINUE_MS).unref();
  upstream.once('continue', pass);
  upstream.once('response', () => clearTimeout(timer));
  upstream.once('close', () => clearTimeout(timer));
}

/** Sends the body of a request, or its end if it has none. */
function sendBody(request: IncomingMessage, upstream: ClientRequest): void {
  if (request.complete && request.readableLength === 0) {
    upstream.end();
    return;
  }
  request.once('end', () => {
    const trailers = trailersOf(request.rawTrailers);
    if (trailers.length > 0) upstream.addTrailers(trailers);
  });
  // The client went away before the end of its body. Break the request off, so that the machine does not take the part
  // for the whole body.
  request.once('error', () => upstream.destroy());
  // Send the head at once: the first bytes of the body may come much later.
  upstream.flushHeaders();
  request.pipe(upstream);
}

/** Sends a response as it arrives. Throws when node refuses to write its head. */
export function sendAnswer(
  answer: IncomingMessage,
  response: ServerResponse,
  isRequestRead: boolean,
  frameOrigins: readonly string[],
): void {
  response.sendDate = false;
  // The rest of the request's body may never be read, so the connection cannot carry another request.
  if (!isRequestRead) response.shouldKeepAlive = false;
  response.writeHead(answer.statusCode ?? 502, answer.statusMessage, toClient(answer.rawHeaders, frameOrigins));
  // Send the head at once: an event stream may send its first event much later.
  response.flushHeaders();
  answer.once('end', () => {
    // The end of the connection is the end of a response without a length. If the connection was cut, the response must
    // not seem complete.
    if (wasCut(answer.socket)) {
      response.destroy();
      return;
    }
    const trailers = trailersOf(answer.rawTrailers);
    if (trailers.length > 0) response.addTrailers(trailers);
  });
  answer.once('error', () => response.destroy());
  answer.pipe(response);
}

/**
 * Returns the header fields that describe the body of a request; none for a request without a body. Throws
 * `validation_error` for an encoding that the relay cannot read, so that both sides never disagree about its end.
 */
export function bodyOf({ headers, method = '' }: IncomingMessage): string[] {
  const { 'transfer-encoding': encoding, 'content-length': length } = headers;
  if (encoding !== undefined) {
    if (encoding.toLowerCase() !== 'chunked' || length !== undefined) {
      throw new ServiceError('validation_error', 'The body must be sent with Content-Length, or chunked and no more.');
    }
    return ['Transfer-Encoding', 'chunked', ...(headers.trailer === undefined ? [] : ['Trailer', headers.trailer])];
  }
  if (length !== undefined) return ['Content-Length', length];
  return ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE'].includes(method) ? [] : ['Content-Length', '0'];
}

/** Returns the error for the client: why no connection was made, or that the program broke the connection. */
export function explain(port: number, upstream: ClientRequest, error: Error): Error {
  const isOurs = error instanceof ServiceError && (upstream.socket === null || error.code !== 'conflict');
  return isOurs ? error : noAnswer(port, error);
}

/** `cause`: the error of the connection, if there was one. */
export function noAnswer(port: number, cause?: Error): ServiceError {
  const isInvalid = cause !== undefined && 'code' in cause && String(cause.code).startsWith('HPE_');
  const what = isInvalid ? 'answered with something that is no valid HTTP' : 'closed the connection without an answer';
  return new ServiceError('port_not_open', `The program on port ${port} ${what}.`, { cause });
}
