// JSON over HTTP on the host agent's Unix socket, with kept-alive connections. Their number has no limit, so that
// requests which wait long for their answer never hold up the start of a machine.
import type { Readable } from 'node:stream';
import { type Dispatcher, Pool } from 'undici';

export type Call = {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  query?: Record<string, string | number>;
  body?: unknown;
  /** For the whole exchange, headers and body; a stream has none. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
};

export type Answer = { status: number; headers: Dispatcher.ResponseData['headers']; body: Readable };

export type Transport = {
  /** Sends one request, and once more when its connection broke. Rejects with the error of the connection. */
  send(call: Call): Promise<Answer>;
  /** Ends the requests under way; nothing can be sent afterwards. */
  close(): void;
};

/** Applies when the agent's answer does not say how long it keeps an idle connection (72 s). */
const KEEP_IDLE_MS = 60_000;

/** Makes a transport; it connects when it is first used. */
export function createTransport(socketPath: string): Transport {
  const pool = new Pool('http://host-agent', {
    socketPath,
    keepAliveTimeout: KEEP_IDLE_MS,
    // Each call has its own time-out, and the event stream has none.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  return {
    send: async (call) => {
      const timeout = call.timeoutMs === undefined ? undefined : AbortSignal.timeout(call.timeoutMs);
      const signal = AbortSignal.any([call.signal, timeout].filter((given) => given !== undefined));
      try {
        return await sendOnce(pool, call, signal);
      } catch (error) {
        // The agent may close an idle connection at the moment in which a request is written to it.
        if (!isBroken(error)) throw error;
        return await sendOnce(pool, call, signal).catch((second: unknown) => {
          // The agent may have acted on the first request and died, even if the second found nobody listening.
          throw wasNeverSent(second) ? error : second;
        });
      }
    },
    close: () => {
      void pool.destroy();
    },
  };
}

async function sendOnce(pool: Pool, { method, path, query, body }: Call, signal: AbortSignal): Promise<Answer> {
  const content =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  const response = await pool.request({ method, path, ...(query ? { query } : {}), ...content, signal });
  return { status: response.statusCode, headers: response.headers, body: response.body };
}

/** The body as bytes. Rejects when the connection breaks before its end. */
export async function readBytes(answer: Answer): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer.body) chunks.push(chunk as Buffer);
  const [first] = chunks;
  return chunks.length === 1 && first ? first : Buffer.concat(chunks);
}

/** The `code` of a system or undici error, else the empty string. */
export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';

const isBroken = (error: unknown): boolean => ['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'].includes(codeOf(error));

/** Whether a request certainly reached nobody: there was no connection. */
export const wasNeverSent = (error: unknown): boolean => ['ECONNREFUSED', 'ENOENT', 'EACCES'].includes(codeOf(error));
