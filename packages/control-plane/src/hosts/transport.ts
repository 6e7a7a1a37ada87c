// Sends JSON over HTTP to a host agent and keeps connections alive. The number of connections is not limited, so
// requests with a long wait never delay other requests such as the start of a machine.
import type { Readable } from 'node:stream';
import { Client, type Dispatcher } from 'undici';
import { connectHost, NotConnected } from './connect.ts';
import type { HostTarget } from './target.ts';

export type Call = {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  query?: Record<string, string | number>;
  body?: unknown;
  /** Bytes to send instead of `body`, as they come. Such a request is sent only once. */
  content?: Readable;
  /** Time-out in milliseconds for the complete request and response. Absent for streams, which have no end. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** Whether the request must not be repeated when the connection breaks, because the host may have acted on it. */
  isSentOnce?: boolean;
  /** Headers besides those of the body. */
  headers?: Record<string, string>;
};

export type Answer = { status: number; headers: Dispatcher.ResponseData['headers']; body: Readable };

export type Transport = {
  /** Sends a request. Repeats it once if the connection broke, unless `isSentOnce`. Rejects with the error of the connection. */
  send(call: Call): Promise<Answer>;
  /** Closes the connections that carry no request. The next request opens a new one. */
  closeIdle(): void;
  /** Aborts all unfinished requests. No request can be sent afterwards. */
  close(): void;
};

/**
 * How long an idle connection is kept, in milliseconds, if the agent's response does not say. The agent itself closes
 * idle connections after 72 s.
 */
const KEEP_IDLE_MS = 60_000;

/** Creates a transport, which connects at the first request. */
export function createTransport(target: HostTarget): Transport {
  const connections = new Connections(target);
  return {
    send: async (call) => {
      const deadline = startDeadline(call);
      try {
        const answer = await sendTwice(connections, call, deadline.signal);
        answer.body.once('close', deadline.stop);
        return answer;
      } catch (error) {
        deadline.stop();
        throw error;
      }
    },
    closeIdle: () => connections.closeIdle(),
    close: () => connections.close(),
  };
}

/**
 * The connections to one host. Each carries one request at a time. undici's own Pool would take 16 KiB of memory for each
 * host, for a queue of requests that is never used here because the number of connections is not limited.
 */
class Connections {
  readonly #target: HostTarget;
  #clients: Client[] = [];
  #isClosed = false;

  constructor(target: HostTarget) {
    this.#target = target;
  }

  /** Returns a connection without a request, which connects when the caller sends one. */
  idle(): Client {
    if (this.#isClosed) throw new NotConnected(new Error('The client of the host is closed.'));
    const idle = this.#clients.find(({ stats }) => stats.size === 0);
    if (idle) return idle;
    const client = this.#create();
    this.#clients.push(client);
    return client;
  }

  closeIdle(): void {
    const isIdle = ({ stats }: Client) => stats.size === 0;
    for (const client of this.#clients.filter(isIdle)) void client.destroy();
    this.#clients = this.#clients.filter((client) => !isIdle(client));
  }

  close(): void {
    this.#isClosed = true;
    for (const client of this.#clients) void client.destroy();
  }

  #create(): Client {
    // The address is a name only: the target says where to connect.
    return new Client('http://host-agent', {
      connect: (_options, callback) => {
        connectHost(this.#target).then(
          (socket) => callback(null, socket),
          (error: Error) => callback(error, null),
        );
      },
      keepAliveTimeout: KEEP_IDLE_MS,
      // Switch off undici's own time-outs: each call sets its own time-out, and the event stream needs none.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }
}

async function sendTwice(connections: Connections, call: Call, signal: AbortSignal): Promise<Answer> {
  try {
    return await sendOnce(connections, call, signal);
  } catch (error) {
    // The connection may have broken because the agent closed it while it was idle, just when this request was sent. So
    // repeat the request.
    if (call.isSentOnce || call.content || !isBroken(error)) throw error;
    return await sendOnce(connections, call, signal).catch((second: unknown) => {
      // If the agent was not reachable for the second attempt, throw the first error: the agent may have acted on the
      // first request before it died.
      throw wasNeverSent(second) ? error : second;
    });
  }
}

/**
 * Returns a signal that is aborted at the call's time-out or by the call's own signal. `stop` frees the timer and the
 * listener. `AbortSignal.timeout` has no such function: its timers would stay until the time-out, long after the
 * answer, and thousands of reads of job output would fill the memory with them.
 */
function startDeadline({ timeoutMs, signal }: Call): { signal: AbortSignal; stop(): void } {
  const controller = new AbortController();
  const onAbort = () => controller.abort(signal?.reason);
  if (signal?.aborted) onAbort();
  else signal?.addEventListener('abort', onAbort, { once: true });
  const onTimeout = () => controller.abort(new DOMException('The host took too long.', 'TimeoutError'));
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs).unref();
  const stop = () => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  };
  return { signal: controller.signal, stop };
}

async function sendOnce(connections: Connections, call: Call, signal: AbortSignal): Promise<Answer> {
  const { method, path, query, body, headers: own = {} } = call;
  const text = body === undefined ? {} : { body: JSON.stringify(body) };
  const content = call.content ? { body: call.content } : text;
  const type = call.content ? 'application/octet-stream' : 'application/json';
  const headers = Object.keys(content).length === 0 ? own : { ...own, 'content-type': type };
  const response = await connections
    .idle()
    .request({ method, path, ...(query ? { query } : {}), ...content, headers, signal });
  return { status: response.statusCode, headers: response.headers, body: response.body };
}

/** Reads the complete body. Rejects when the connection breaks before its end. */
export async function readBytes(answer: Answer): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer.body) chunks.push(chunk as Buffer);
  const [first] = chunks;
  return chunks.length === 1 && first ? first : Buffer.concat(chunks);
}

/** Returns the `code` of a system error or an undici error, or the empty string. */
export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';

/** Errors of a connection that was open. */
const BROKEN: ReadonlySet<string> = new Set([
  ...['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET', 'EPROTO'],
  ...['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENETDOWN'],
]);

const isBroken = (error: unknown): boolean => {
  const code = codeOf(error);
  return BROKEN.has(code) || code.startsWith('ERR_SSL_');
};

/** Returns true if the request certainly did not reach the agent, because no connection could be opened. */
export const wasNeverSent = (error: unknown): boolean => error instanceof NotConnected;
